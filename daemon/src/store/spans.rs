//! Tokens of a turn under way, so that an agent worker's death costs only what came after the last
//! acknowledged ones (I-2).
//!
//! ```text
//!  AppendSpans 0 ──► 17 ──► 40 ──► ... ──► AppendTurn: the whole turn replaces its spans
//!       │ again, also after the turn: Repeated       │ begins with other tokens: Already
//!       │ other tokens in the same place: Already
//!       └ after tokens that are not there: SpanGap
//! ```
//! A span is stored under the number of tokens before it, so that what is stored of a turn has no
//! gap and says itself where it ends. The first one wins, as with turns.
use super::codec::undecodable;
use super::error::StoreError;
use super::keys::Key;
use super::parts::Get;
use super::reader::Reader;
use super::txn::Txn;
use super::types::Appended;
use super::{Durable, Store, trajectories};
use prost::Message;
use robust_proto::v1::{Span, Turn};
use robust_shared::ids::TrajectoryId;

/// Consecutive tokens of a turn under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tokens {
    /// The turn.
    pub turn: u32,
    /// Tokens of this turn before these.
    pub offset: u32,
    /// The tokens, cut where the weights changed.
    pub spans: Vec<Span>,
}

impl Store {
    /// Stores tokens of a turn under way. `prompt_ids` is kept from the first ones of turn 0.
    pub fn append_spans(
        &self,
        trajectory: TrajectoryId,
        prompt_ids: Vec<u32>,
        tokens: Tokens,
    ) -> Durable<Appended> {
        self.submit(move |txn| append(txn, trajectory, &prompt_ids, tokens))
    }
}

fn append(
    txn: &mut Txn<'_>,
    trajectory: TrajectoryId,
    prompt_ids: &[u32],
    tokens: Tokens,
) -> Result<Appended, StoreError> {
    let (number, turn) = (trajectory.key(), tokens.turn);
    if let Some(whole) = trajectories::turn(txn, number, turn)? {
        return Ok(compare(&whole.spans, &tokens));
    }
    trajectories::must_follow(txn, trajectory, turn)?;
    let end = stored_tokens(txn, number, turn)?;
    if tokens.offset > end {
        return Err(StoreError::SpanGap {
            trajectory,
            turn,
            expected: end,
            got: tokens.offset,
        });
    }
    if tokens.offset < end {
        return Ok(compare(&in_txn(txn, number, turn)?, &tokens));
    }
    if turn == 0 && end == 0 {
        trajectories::put_prompt(txn, number, prompt_ids)?;
    }
    let mut offset = end;
    for span in tokens.spans {
        txn.put(&Key::Span(number, turn, offset), &span.encode_to_vec())?;
        offset = offset.saturating_add(len(&span));
    }
    Ok(Appended::Stored)
}

/// What to answer to tokens that are, all or in part, stored already.
fn compare(stored: &[Span], tokens: &Tokens) -> Appended {
    let mut stored = flat(stored).skip(tokens.offset as usize);
    match flat(&tokens.spans).all(|token| stored.next() == Some(token)) {
        true => Appended::Repeated,
        false => Appended::Already,
    }
}

/// Token by token: id, logprob to the bit, version. Where the spans are cut says nothing.
fn flat(spans: &[Span]) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
    spans.iter().flat_map(|span| {
        let tokens = span.ids.iter().zip(&span.logprobs);
        tokens.map(|(id, logprob)| (*id, logprob.to_bits(), span.version))
    })
}

fn len(span: &Span) -> u32 {
    u32::try_from(span.ids.len()).unwrap_or(u32::MAX)
}

fn all_of(number: u64, turn: u32) -> (Key, Key) {
    (
        Key::Span(number, turn, 0),
        Key::Span(number, turn, u32::MAX),
    )
}

/// Where the tokens stored of a turn under way end.
pub fn stored_tokens(txn: &Txn<'_>, number: u64, turn: u32) -> Result<u32, StoreError> {
    let (from, to) = all_of(number, turn);
    // Most turns are stored whole: a look at the first is much less than one at a range.
    if !txn.has(&from)? {
        return Ok(0);
    }
    let Some(last) = txn.last_key(&from, &to)? else {
        return Ok(0);
    };
    let span = decode(txn, &last)?;
    let end = span.map(|(offset, span)| offset.saturating_add(len(&span)));
    Ok(end.unwrap_or(0))
}

/// The whole turn takes the place of its spans. False: they are no beginning of it.
pub fn replace(txn: &mut Txn<'_>, number: u64, turn: &Turn) -> Result<bool, StoreError> {
    if stored_tokens(txn, number, turn.index)? == 0 {
        return Ok(true);
    }
    let stored = in_txn(txn, number, turn.index)?;
    let mut whole = flat(&turn.spans);
    if !flat(&stored).all(|token| whole.next() == Some(token)) {
        return Ok(false);
    }
    let (from, to) = all_of(number, turn.index);
    for key in txn.keys(&from, &to)? {
        if let Some(key) = Key::decode(&key) {
            txn.remove(&key)?;
        }
    }
    Ok(true)
}

fn in_txn(txn: &Txn<'_>, number: u64, turn: u32) -> Result<Vec<Span>, StoreError> {
    let (from, to) = all_of(number, turn);
    let keys = txn.keys(&from, &to)?;
    Ok(joined(txn, keys.into_iter().map(Ok))?.0)
}

/// What is stored of a turn under way, those of one version in one, and how many spans follow each
/// other without a gap.
pub fn of_turn(
    reader: &Reader<'_>,
    number: u64,
    turn: u32,
) -> Result<(Vec<Span>, u64), StoreError> {
    let (from, to) = all_of(number, turn);
    let keys = reader.keys(&from, &to).map(|key| key.map(|k| k.to_vec()));
    joined(reader, keys)
}

fn joined<G: Get>(
    from: &G,
    keys: impl Iterator<Item = Result<Vec<u8>, StoreError>>,
) -> Result<(Vec<Span>, u64), StoreError> {
    let (mut spans, mut end, mut count) = (Vec::<Span>::new(), 0, 0);
    for key in keys {
        // One that is gone was replaced by its turn while this read.
        let Some((offset, span)) = decode(from, &key?)?.filter(|(offset, _)| *offset == end) else {
            break;
        };
        (end, count) = (offset.saturating_add(len(&span)), count + 1);
        match spans.last_mut().filter(|last| last.version == span.version) {
            Some(last) => {
                last.ids.extend(span.ids);
                last.logprobs.extend(span.logprobs);
            }
            None => spans.push(span),
        }
    }
    Ok((spans, count))
}

fn decode<G: Get>(from: &G, key: &[u8]) -> Result<Option<(u32, Span)>, StoreError> {
    let Some(bytes) = from.get(key)? else {
        return Ok(None);
    };
    let span = Span::decode(&bytes[..]).map_err(|e| undecodable(from.path(), key, &e))?;
    match Key::decode(key) {
        Some(Key::Span(_, _, offset)) => Ok(Some((offset, span))),
        _ => Err(undecodable(from.path(), key, &"no key of a span")),
    }
}
