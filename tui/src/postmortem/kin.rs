//! Incidents of the same kind: what one is known again by, though times, numbers and addresses differ.
//!
//! ```text
//!  rule, kind of role ────────────────────────────────┐
//!  its cause's fingerprint, else what was seen, folded ┴─► BLAKE3 ─► 8 bytes
//! ```
use robust_proto::v1::Incident;
use robust_shared::core::Cause;
use std::fmt;

/// Between two parts; no text has this byte.
const BETWEEN: [u8; 1] = [0xff];

/// What an incident is known again by. Two of the same instance need not have the same, and of two instances of a role
/// they may be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u8; 8]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl Fingerprint {
    /// Of an incident.
    pub fn of(i: &Incident) -> Fingerprint {
        // Not of its evidence, which is kept of the newest incidents only: it would be another one then.
        let cause = i.cause.as_ref().map(|cause| cause.fingerprint.clone());
        let death = cause.unwrap_or_else(|| folded(&i.reason));
        let mut hasher = blake3::Hasher::new();
        for part in [&i.rule, &i.role, &death] {
            hasher.update(part.as_bytes());
            hasher.update(&BETWEEN);
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Fingerprint(first)
    }
}

/// Those before this one that are of its kind, oldest first.
pub fn seen_before<'a>(all: &'a [Incident], i: &Incident) -> Vec<&'a Incident> {
    let own = Fingerprint::of(i);
    let before = all
        .iter()
        .filter(|e| e.id < i.id && (&e.rule, &e.role) == (&i.rule, &i.role));
    before.filter(|e| Fingerprint::of(e) == own).collect()
}

/// A text by which it is known again: as the controller folds what a process dies of. One that names a signal from
/// outside has no such cause, and stands for itself.
fn folded(text: &str) -> String {
    let cause = Cause::of_error(text);
    cause.map_or_else(|| text.to_owned(), |cause| cause.fingerprint.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use robust_proto::v1;

    fn incident(id: u64, reason: &str, evidence: &str) -> Incident {
        Incident {
            id,
            role: "trainer".into(),
            rule: "trainer idle".into(),
            reason: reason.into(),
            evidence: evidence.into(),
            ..Default::default()
        }
    }

    const GDB: &str = "process 41007 (robust-worker) is in state T (stopped)\n\
                       #0  0x00007f52a1b3 in poll (fds=0x7ffd11, nfds=3) from libc.so.6\n\
                       #1  uct_progress () from libuct.so.0";

    #[test]
    fn numbers_and_addresses_do_not_tell_two_of_a_kind_apart() {
        let one = incident(1, "no progress for 20.0 s", GDB);
        let later = GDB
            .replace("41007", "977")
            .replace("0x00007f52a1b3", "0x00007f99ffee")
            .replace("nfds=3", "nfds=17");
        let mut two = incident(2, "no progress for 31.4 s", &later);
        (two.index, two.incarnation, two.step) = (3, 9, 77);
        assert_eq!(Fingerprint::of(&one), Fingerprint::of(&two));
        two.evidence.clear();
        assert_eq!(
            Fingerprint::of(&one),
            Fingerprint::of(&two),
            "evidence of older incidents is not kept"
        );
    }

    #[test]
    fn another_rule_role_or_reason_is_another_kind() {
        let one = incident(1, "no progress for 20.0 s", GDB);
        let changed: [fn(&mut Incident); 3] = [
            |i| i.rule = "exit".into(),
            |i| i.role = "rollout".into(),
            |i| i.reason = "no heartbeat for 20.0 s".into(),
        ];
        for change in changed {
            let mut other = one.clone();
            change(&mut other);
            assert_ne!(Fingerprint::of(&one), Fingerprint::of(&other), "{other:?}");
        }
    }

    #[test]
    fn a_cause_that_the_controller_knows_decides_alone() {
        let cause = |mut i: Incident, fingerprint: &str| {
            i.cause = Some(v1::Cause {
                fingerprint: fingerprint.into(),
                words: "exit code 1: KeyError: 'prompt'".into(),
                count: u32::try_from(i.id).unwrap_or(0),
            });
            Fingerprint::of(&i)
        };
        let one = cause(incident(1, "exited with code 1", ""), "91b2a947f85fabd6");
        let two = cause(incident(2, "exited with code 1", GDB), "91b2a947f85fabd6");
        let other = cause(incident(3, "exited with code 1", ""), "0000a947f85fabd6");
        assert_eq!(one, two);
        assert_ne!(one, other);
    }

    #[test]
    fn only_earlier_ones_of_the_same_kind_were_seen_before() {
        let all = [
            incident(1, "killed by SIGKILL", ""),
            incident(2, "no progress for 4 s", ""),
            incident(3, "killed by SIGKILL", ""),
            incident(4, "killed by SIGKILL", ""),
        ];
        let ids =
            |i: &Incident| -> Vec<u64> { seen_before(&all, i).iter().map(|e| e.id).collect() };
        assert_eq!(ids(&all[2]), [1]);
        assert_eq!(ids(&all[3]), [1, 3]);
        assert_eq!(ids(&all[1]), Vec::<u64>::new());
    }
}
