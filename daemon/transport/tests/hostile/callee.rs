//! Hostile peers that are called.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use robust_transport::{Cancel, FetchError, Part, RegionKey};

use super::protocol::{answer, job_key};
use super::raw::{DATA, EAGER, Ep, PROVE, READ, READY, REFUSAL, REPLY, Raw, WAIT};
use super::{Guarded, LIMIT, SECRET, Victim, garbage};

const OWNER: u64 = 77;
const PART: std::ops::Range<usize> = 1000..1000 + (1 << 20);

/// Lets the victim fetch from a raw source that does `attack` once it was called.
fn fetch_from(
    victim: &Victim,
    attack: impl FnOnce(&mut Raw, Ep) + Send,
) -> (Result<u64, FetchError>, Guarded) {
    let into = Guarded::new();
    let mut source = Raw::new();
    let addr = source.listen();
    let key = RegionKey {
        owner: OWNER,
        region: 1,
        len: 10 << 20,
    };
    let parts = [Part {
        src: 5,
        dst: PART.start as u64,
        len: PART.len() as u64,
    }];
    let result = std::thread::scope(|scope| {
        let (cancel, target) = (Cancel::new(), &into.0);
        let fetch = scope.spawn(move || {
            let from = &victim.transport;
            from.fetch(addr, &key, &parts, target, &cancel, |_| ())
        });
        let ep = source.accept(LIMIT);
        attack(&mut source, ep);
        source.drive(LIMIT, |_| fetch.is_finished());
        fetch.join().unwrap()
    });
    (result, into)
}

/// Proves itself and takes a read; answers its token.
fn be_asked(source: &mut Raw, ep: Ep) -> u64 {
    let session = answer(source, ep, OWNER, &job_key(SECRET));
    let proof = source.expect(PROVE, LIMIT);
    source.send(ep, READY, &[], &proof[..8], EAGER | REPLY);
    let read = source.expect(READ, LIMIT);
    assert_eq!(read[..8], session.to_le_bytes());
    u64::from_le_bytes(read[8..16].try_into().unwrap())
}

#[test]
fn a_source_without_the_token_is_asked_for_nothing() {
    let victim = Victim::new(LIMIT);
    let (result, into) = fetch_from(&victim, |source, ep| {
        answer(source, ep, OWNER, &job_key(b"another job"));
        assert!(source.is_cut(LIMIT));
    });
    let Err(FetchError::Connect { reason, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(reason, "it does not have this job's token");
    into.assert_untouched_but(0..0);
    victim.assert_unharmed();
}

#[test]
fn a_source_that_says_ready_without_a_proof_is_closed() {
    let victim = Victim::new(LIMIT);
    let (result, into) = fetch_from(&victim, |source, ep| {
        let hello = source.expect(super::raw::HELLO, LIMIT);
        source.send(ep, READY, &[], &hello[4..12], EAGER | REPLY);
        assert!(source.is_cut(LIMIT));
    });
    assert!(
        matches!(result, Err(FetchError::Connect { .. })),
        "{result:?}"
    );
    into.assert_untouched_but(0..0);
    victim.assert_unharmed();
}

#[test]
fn data_of_another_length_than_asked_for_ends_the_link() {
    let victim = Victim::new(LIMIT);
    for wrong in [0, 1, 524_279, 524_281, 2 << 20] {
        let (result, into) = fetch_from(&victim, |source, ep| {
            let token = be_asked(source, ep);
            source.send(ep, DATA, &token.to_le_bytes(), &vec![1; wrong], EAGER);
            assert!(source.is_cut(LIMIT));
        });
        assert!(
            matches!(result, Err(FetchError::Breach { .. })),
            "{result:?}"
        );
        into.assert_untouched_but(0..0);
    }
    victim.assert_unharmed();
}

#[test]
fn answers_to_reads_that_were_not_sent_are_dropped() {
    let victim = Victim::new(Duration::from_millis(300));
    let (result, into) = fetch_from(&victim, |source, ep| {
        let token = be_asked(source, ep);
        for wrong in [0, 1, token ^ 1, !token, u64::MAX] {
            source.send(ep, DATA, &wrong.to_le_bytes(), &[9; 1000], EAGER);
            let refusal = [&wrong.to_le_bytes()[..], &[1]].concat();
            source.send(ep, REFUSAL, &[], &refusal, EAGER | REPLY);
            source.send(ep, WAIT, &[], &wrong.to_le_bytes(), EAGER | REPLY);
        }
    });
    assert!(
        matches!(result, Err(FetchError::Stalled { done: 0, .. })),
        "{result:?}"
    );
    into.assert_untouched_but(0..0);
    victim.assert_unharmed();
}

#[test]
fn random_messages_of_a_source_write_nothing_outside_of_what_was_asked_for() {
    let victim = Victim::new(Duration::from_millis(150));
    let config = ProptestConfig {
        cases: 20,
        max_shrink_iters: 0,
        ..ProptestConfig::default()
    };
    let case = |(proven, mut messages): (bool, Vec<super::Message>)| {
        let (result, into) = fetch_from(&victim, |source, ep| {
            if proven {
                let token = be_asked(source, ep);
                // Half of them answer the read that was sent.
                for (_, header, payload, _) in messages.iter_mut().step_by(2) {
                    *header = token.to_le_bytes().to_vec();
                    payload.splice(..payload.len().min(8), token.to_le_bytes());
                }
            }
            for (kind, header, payload, flags) in &messages {
                source.send(ep, *kind, header, payload, *flags);
            }
        });
        prop_assert!(result.is_err(), "{result:?}");
        into.assert_untouched_but(if proven { PART } else { 0..0 });
        victim.assert_unharmed();
        Ok(())
    };
    let cases = (any::<bool>(), garbage());
    TestRunner::new(config).run(&cases, case).unwrap();
}
