//! Our words and etcd's.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::generated::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::generated::etcdserverpb::request_op::Request;
use crate::generated::etcdserverpb::response_op::Response;
use crate::generated::etcdserverpb::{
    Compare as WireCompare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
    TxnResponse,
};
use crate::generated::mvccpb::event::EventType;
use crate::generated::mvccpb::{Event, KeyValue};
use crate::{ArbiterError, Change, Changed, Compare, Entry, LeaseId, Revision, Transacted, Write};

/// The first key of a prefix, and the one behind its last.
pub(super) fn prefix_end(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // No byte of a string is the greatest.
        Some(last) => *last += 1,
        // From the least key on, without an end.
        None => return (vec![0], vec![0]),
    }
    (prefix.into(), end)
}

/// Whole seconds, none less than asked for.
pub(super) fn seconds(ttl: Duration) -> i64 {
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(whole.max(1)).unwrap_or(i64::MAX)
}

/// Zero would mean: from now on.
pub(super) fn first_of(from: Revision) -> Revision {
    from.max(Revision(1))
}

fn text(key: Vec<u8>) -> Result<String, ArbiterError> {
    String::from_utf8(key).map_err(|error| ArbiterError::Refused {
        at: "a key".to_owned(),
        why: format!(
            "{} is no text, and none of ours; delete it, or use another prefix",
            error.as_bytes().escape_ascii()
        ),
    })
}

pub(super) fn entry(found: KeyValue) -> Result<Entry, ArbiterError> {
    Ok(Entry {
        key: text(found.key)?,
        value: found.value,
        created: Revision(found.create_revision),
        modified: Revision(found.mod_revision),
        lease: Some(LeaseId(found.lease)).filter(|lease| lease.0 != 0),
    })
}

/// Asks, where it is refused, for what the compared keys are.
pub(super) fn transaction(compares: Vec<Compare>, writes: Vec<Write>) -> TxnRequest {
    let compared: BTreeSet<&str> = compares.iter().map(Compare::key).collect();
    let reads = compared.into_iter().map(|key| {
        Request::RequestRange(RangeRequest {
            key: key.into(),
            range_end: Vec::new(),
        })
    });
    let operation = |request| RequestOp {
        request: Some(request),
    };
    TxnRequest {
        failure: reads.map(operation).collect(),
        compare: compares.into_iter().map(compare).collect(),
        success: writes.into_iter().map(write).map(operation).collect(),
    }
}

/// Zero is what etcd compares with where there is no key, and nothing was put by the first change.
fn compare(compare: Compare) -> WireCompare {
    let (key, target, union) = match compare {
        Compare::Absent { key } => (key, CompareTarget::Create, TargetUnion::CreateRevision(0)),
        Compare::Created { key, revision } => (
            key,
            CompareTarget::Create,
            TargetUnion::CreateRevision(revision.0.max(1)),
        ),
        Compare::Modified { key, revision } => (
            key,
            CompareTarget::Mod,
            TargetUnion::ModRevision(revision.0.max(1)),
        ),
    };
    WireCompare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key: key.into(),
        target_union: Some(union),
    }
}

fn write(write: Write) -> Request {
    match write {
        Write::Put { key, value, lease } => Request::RequestPut(PutRequest {
            key: key.into(),
            value,
            lease: lease.map_or(0, |lease| lease.0),
        }),
        Write::Delete { key } => {
            Request::RequestDeleteRange(DeleteRangeRequest { key: key.into() })
        }
    }
}

pub(super) fn transacted(answer: TxnResponse) -> Result<Transacted, ArbiterError> {
    if answer.succeeded {
        let revision = answer.header.unwrap_or_default().revision;
        return Ok(Transacted::Done(Revision(revision)));
    }
    let found = answer.responses.into_iter().flat_map(|r| match r.response {
        Some(Response::ResponseRange(range)) => range.kvs,
        _ => Vec::new(),
    });
    let found = found.map(entry).collect::<Result<_, _>>()?;
    Ok(Transacted::Refused { found })
}

/// Events, put together by the transactions that made them. One answer holds whole transactions.
pub(super) fn changes(events: Vec<Event>) -> Result<Vec<Changed>, ArbiterError> {
    let mut all: Vec<Changed> = Vec::new();
    for event in events {
        let kind = event.r#type();
        let Some(pair) = event.kv else { continue };
        let revision = Revision(pair.mod_revision);
        let change = match kind {
            EventType::Put => Change::Put(entry(pair)?),
            EventType::Delete => Change::Deleted {
                key: text(pair.key)?,
            },
        };
        match all.last_mut() {
            Some(last) if last.revision == revision => last.changes.push(change),
            _ => all.push(Changed {
                revision,
                changes: vec![change],
            }),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        assert_eq!(prefix_end("run/"), (b"run/".to_vec(), b"run0".to_vec()));
        assert_eq!(prefix_end(""), (vec![0], vec![0]));
        let (_, end) = prefix_end("ÿ");
        assert!(end.as_slice() > "ÿ\u{10ffff}".as_bytes());
    }

    #[test]
    fn a_lease_is_asked_for_in_whole_seconds_and_none_less() {
        assert_eq!(seconds(Duration::ZERO), 1);
        assert_eq!(seconds(Duration::from_millis(1000)), 1);
        assert_eq!(seconds(Duration::from_millis(1001)), 2);
    }
}
