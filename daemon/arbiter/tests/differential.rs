//! The virtual etcd and the real one are asked the same in any order, and answer the same. Revisions are counted from
//! where a case begins, leases in the order in which they were granted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use futures::StreamExt as _;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use robust_arbiter::{
    Arbiter, ArbiterError, Change, Changed, Compare, Entry, LeaseId, Revision, Transacted, Virtual,
    Write,
};
use robust_etcd::{Cluster, Wire};

use common::{absent, client, created, modified};

const KEYS: [&str; 4] = ["a", "run/", "run/a", "run/b"];
const CASES: u32 = 48;

/// What is compared: with what is there, or with any revision of this case.
#[derive(Clone, Debug)]
enum Asks {
    Absent,
    Created(Option<i64>),
    Modified(Option<i64>),
}

/// Which key: what is put, and the lease that it is bound to; or that it is deleted.
type Writes = (usize, Option<(u8, Option<usize>)>);

#[derive(Clone, Debug)]
enum Step {
    Grant,
    KeepAlive(usize),
    Revoke(usize),
    Read(usize),
    Prefix(&'static str),
    Transact(Vec<(usize, Asks)>, Vec<Writes>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..KEYS.len();
    let revision = || proptest::option::weighted(0.2, 0..30_i64);
    let asks = prop_oneof![
        Just(Asks::Absent),
        revision().prop_map(Asks::Created),
        revision().prop_map(Asks::Modified),
    ];
    let lease = proptest::option::weighted(0.4, 0..4_usize);
    let write = proptest::option::weighted(0.7, (any::<u8>(), lease));
    let transact = (
        proptest::collection::vec((key.clone(), asks), 0..3),
        proptest::collection::vec((key.clone(), write), 0..4),
    );
    let step = prop_oneof![
        1 => Just(Step::Grant),
        1 => (0..4_usize).prop_map(Step::KeepAlive),
        1 => (0..4_usize).prop_map(Step::Revoke),
        1 => key.prop_map(Step::Read),
        1 => prop_oneof![Just(""), Just("r"), Just("run/"), Just("x")].prop_map(Step::Prefix),
        8 => transact.prop_map(|(compares, writes)| Step::Transact(compares, writes)),
    ];
    proptest::collection::vec(step, 1..30)
}

/// One of the two, and how its numbers are told.
struct Side<'a> {
    arbiter: &'a dyn Arbiter,
    base: Revision,
    leases: Vec<LeaseId>,
}

impl<'a> Side<'a> {
    /// Begins with no key at all.
    async fn new(arbiter: &'a dyn Arbiter) -> Self {
        let (entries, _) = arbiter.read_prefix("").await.unwrap();
        let deletes = entries
            .into_iter()
            .map(|entry| Write::Delete { key: entry.key });
        _ = arbiter.transact(vec![], deletes.collect()).await.unwrap();
        let (_, base) = arbiter.read_prefix("").await.unwrap();
        let leases = Vec::new();
        Self {
            arbiter,
            base,
            leases,
        }
    }

    fn revision(&self, revision: Revision) -> Revision {
        Revision(revision.0 - self.base.0)
    }

    fn lease(&self, index: usize) -> LeaseId {
        // None that was ever granted, where there are fewer.
        self.leases.get(index).copied().unwrap_or(LeaseId(7))
    }

    fn plain(&self, entry: Entry) -> Entry {
        let index = |lease| self.leases.iter().position(|own| *own == lease).unwrap();
        Entry {
            created: self.revision(entry.created),
            modified: self.revision(entry.modified),
            lease: entry.lease.map(|lease| LeaseId(index(lease) as i64)),
            ..entry
        }
    }

    fn plain_error(&self, error: &ArbiterError) -> String {
        match error {
            ArbiterError::LeaseOver { .. } => "the lease is over".to_owned(),
            ArbiterError::Refused { why, .. } => why.clone(),
            other => panic!("{other}"),
        }
    }

    async fn compare(&self, key: &str, asks: &Asks) -> Compare {
        let there = self.arbiter.read(key).await.unwrap();
        let any = |own: &Option<i64>, there: Option<Revision>| match (own, there) {
            (None, Some(there)) => there,
            (own, _) => Revision(self.base.0 + own.unwrap_or(0)),
        };
        match asks {
            Asks::Absent => absent(key),
            Asks::Created(own) => created(key, any(own, there.map(|entry| entry.created))),
            Asks::Modified(own) => modified(key, any(own, there.map(|entry| entry.modified))),
        }
    }

    fn write(&self, (key, value): &Writes) -> Write {
        let key = KEYS[*key].to_owned();
        match value {
            None => Write::Delete { key },
            Some((value, lease)) => Write::Put {
                key,
                value: vec![*value],
                lease: lease.map(|index| self.lease(index)),
            },
        }
    }

    /// Makes a step, and tells what came of it.
    async fn make(&mut self, step: &Step) -> String {
        match step {
            Step::Grant => {
                let lease = self.arbiter.grant(Duration::from_secs(600)).await.unwrap();
                self.leases.push(lease.id);
                format!("{:?}", lease.ttl)
            }
            Step::KeepAlive(index) => {
                let kept = self.arbiter.keep_alive(self.lease(*index)).await;
                format!("{:?}", kept.map_err(|error| self.plain_error(&error)))
            }
            Step::Revoke(index) => {
                format!("{:?}", self.arbiter.revoke(self.lease(*index)).await)
            }
            Step::Read(key) => {
                let found = self.arbiter.read(KEYS[*key]).await.unwrap();
                format!("{:?}", found.map(|entry| self.plain(entry)))
            }
            Step::Prefix(prefix) => {
                let (found, revision) = self.arbiter.read_prefix(prefix).await.unwrap();
                let found: Vec<_> = found.into_iter().map(|entry| self.plain(entry)).collect();
                format!("{found:?} at {}", self.revision(revision))
            }
            Step::Transact(compares, writes) => {
                let mut asked = Vec::new();
                for (key, asks) in compares {
                    asked.push(self.compare(KEYS[*key], asks).await);
                }
                let writes = writes.iter().map(|write| self.write(write)).collect();
                match self.arbiter.transact(asked, writes).await {
                    Ok(Transacted::Done(revision)) => format!("done {}", self.revision(revision)),
                    Ok(Transacted::Refused { found }) => {
                        let found = found.into_iter().map(|entry| self.plain(entry));
                        format!("refused {:?}", found.collect::<Vec<_>>())
                    }
                    Err(error) => self.plain_error(&error),
                }
            }
        }
    }

    /// All that a watch sees of a prefix from the beginning of the case.
    async fn history(&self, prefix: &str) -> Vec<Changed> {
        let mark = format!("{prefix}end");
        let put = vec![common::put(&mark, "")];
        _ = self.arbiter.transact(vec![], put).await.unwrap();
        let mut watch = self.arbiter.watch(prefix, self.base.next());
        let mut seen = Vec::new();
        loop {
            let changed = watch.next().await.unwrap().unwrap();
            let changes = changed.changes.into_iter().map(|change| match change {
                Change::Put(entry) => Change::Put(self.plain(entry)),
                deleted => deleted,
            });
            let changes: Vec<_> = changes.collect();
            let ends = changes.iter().any(|change| change.key() == mark);
            let revision = self.revision(changed.revision);
            seen.push(Changed { revision, changes });
            if ends {
                return seen;
            }
        }
    }
}

async fn both_answer_the_same(real: &dyn Arbiter, steps: &[Step]) -> Result<(), TestCaseError> {
    let etcd = Virtual::new();
    let imitation = etcd.client();
    let (mut real, mut imitation) = (Side::new(real).await, Side::new(&imitation).await);
    for (n, step) in steps.iter().enumerate() {
        let (expected, found) = (real.make(step).await, imitation.make(step).await);
        prop_assert_eq!(expected, found, "step {}: {:?}", n, step);
    }
    for prefix in ["", "run/"] {
        prop_assert_eq!(real.history(prefix).await, imitation.history(prefix).await);
    }
    Ok(())
}

#[test]
fn the_virtual_etcd_and_the_real_one_answer_the_same_in_any_order() {
    let Some(cluster) = Cluster::start(1, Wire::Plain) else {
        return;
    };
    let real = client(&cluster, &[0]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let ran = TestRunner::new(config).run(&steps(), |steps| {
        runtime.block_on(both_answer_the_same(&real, &steps))
    });
    ran.unwrap();
}
