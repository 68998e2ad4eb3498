//! Members of a real etcd die, freeze and come back; whoever asks goes on with the others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use robust_arbiter::{Arbiter, ArbiterError, Change, Changed, Etcd, Revision, Transacted};
use robust_etcd::{Cluster, Wire};

use common::{client, modified, options, put, puts};

/// What a call may take: the timeout of the options, and what a busy machine adds.
const CALL: Duration = Duration::from_millis(1500);
/// etcd elects within a second here, in several tries where the machine is busy.
const ELECTED: Duration = Duration::from_secs(15);

/// A number under a key, made greater by transactions that compare what they change. It reads after each lost answer,
/// and knows then whether it was done.
struct Counter {
    etcd: Etcd,
    revision: Revision,
    value: u64,
    lost: u32,
}

impl Counter {
    async fn new(etcd: Etcd) -> Self {
        let revision = puts(&etcd, "counter", "0").await;
        Self {
            etcd,
            revision,
            value: 0,
            lost: 0,
        }
    }

    async fn try_increase(&mut self) -> Result<(), ArbiterError> {
        let next = (self.value + 1).to_string();
        let compares = vec![modified("counter", self.revision)];
        let asked = Instant::now();
        let transacted = self
            .etcd
            .transact(compares, vec![put("counter", &next)])
            .await;
        assert!(
            asked.elapsed() < CALL,
            "{:?}: {transacted:?}",
            asked.elapsed()
        );
        match transacted {
            Ok(Transacted::Done(revision)) => {
                self.revision = revision;
                self.value += 1;
            }
            // The one whose answer was lost was made after it was read that it was not.
            Ok(Transacted::Refused { found }) => {
                assert!(self.lost > 0, "nobody else changes it: {found:?}");
                self.adopt(&found[0].value, found[0].modified);
            }
            Err(error @ ArbiterError::Unknown { .. }) => {
                self.lost += 1;
                if let Ok(found) = self.etcd.read("counter").await {
                    let found = found.unwrap();
                    self.adopt(&found.value, found.modified);
                }
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn adopt(&mut self, value: &[u8], revision: Revision) {
        let value = String::from_utf8_lossy(value).parse().unwrap();
        assert!(
            value == self.value || value == self.value + 1,
            "{value} after {}",
            self.value
        );
        (self.value, self.revision) = (value, revision);
    }

    /// How long it takes until it is greater by one.
    async fn increase(&mut self) -> Duration {
        let begun = Instant::now();
        while let Err(error) = self.try_increase().await {
            assert!(begun.elapsed() < ELECTED, "{error}");
            eprintln!("{:?}: {error}", begun.elapsed());
        }
        begun.elapsed()
    }
}

/// The indices of three members, the leader first.
fn leader_first(cluster: &Cluster) -> [usize; 3] {
    let leader = cluster.leader();
    [leader, (leader + 1) % 3, (leader + 2) % 3]
}

#[tokio::test]
async fn transactions_go_on_when_a_member_dies_and_when_their_leader_does() {
    let Some(mut cluster) = Cluster::start(3, Wire::Plain) else {
        return;
    };
    let [leader, second, third] = leader_first(&cluster);
    let mut counter = Counter::new(client(&cluster, &[second, leader, third])).await;
    cluster.kill(second);
    let follower = counter.increase().await;
    cluster.restart(second);
    let restarted = counter.increase().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    counter.increase().await;

    let leader = cluster.leader();
    cluster.kill(leader);
    let led = counter.increase().await;
    for _ in 0..20 {
        counter.increase().await;
    }
    eprintln!("a follower died: {follower:?}, {restarted:?} when it is back; the leader: {led:?}");
    let value = counter.etcd.read("counter").await.unwrap().unwrap().value;
    assert_eq!(value, counter.value.to_string().as_bytes());
}

#[tokio::test]
async fn without_a_majority_all_calls_fail_in_time_and_go_on_once_it_is_back() {
    let Some(mut cluster) = Cluster::start(3, Wire::Plain) else {
        return;
    };
    let [leader, second, third] = leader_first(&cluster);
    let etcd = client(&cluster, &[third, second, leader]);
    let lease = etcd.grant(Duration::from_secs(600)).await.unwrap().id;
    let mut counter = Counter::new(etcd.clone()).await;
    let mut watch = etcd.watch("counter", counter.revision.next());
    counter.increase().await;
    assert!(watch.next().await.unwrap().is_ok());
    cluster.kill(leader);
    cluster.kill(second);
    // The one that is left finds out that nobody leads.
    let begun = Instant::now();
    let error = loop {
        let error = counter.try_increase().await.unwrap_err();
        if matches!(error, ArbiterError::Unavailable { .. }) {
            break error;
        }
        assert!(begun.elapsed() < ELECTED, "{error}");
    };
    assert!(error.to_string().contains("no leader"), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    for n in 0..4 {
        let asked = Instant::now();
        let error = match n {
            0 => etcd.read("counter").await.unwrap_err(),
            1 => etcd.keep_alive(lease).await.unwrap_err(),
            2 => etcd.revoke(lease).await.unwrap_err(),
            _ => etcd.grant(Duration::from_secs(1)).await.unwrap_err(),
        };
        assert!(matches!(error, ArbiterError::Unavailable { .. }), "{error}");
        assert!(asked.elapsed() < CALL, "{:?}: {error}", asked.elapsed());
    }
    let broken = tokio::time::timeout(Duration::from_secs(10), watch.next()).await;
    let broken = broken.expect("the watch of a member without a leader ends");
    assert!(
        matches!(broken, Some(Err(ArbiterError::WatchBroken { .. }))),
        "{broken:?}"
    );

    cluster.restart(second);
    let back = counter.increase().await;
    eprintln!("it went on {back:?} after a member was started");
    assert!(etcd.keep_alive(lease).await.is_ok());
}

#[tokio::test]
async fn a_frozen_member_is_passed_by_and_what_it_does_when_it_thaws_is_harmless() {
    let Some(cluster) = Cluster::start(3, Wire::Plain) else {
        return;
    };
    let [leader, second, third] = leader_first(&cluster);
    let mut counter = Counter::new(client(&cluster, &[second, leader, third])).await;
    let reader = client(&cluster, &[second, third]);
    reader.read("counter").await.unwrap();
    cluster.freeze(second);
    // Another one answers a read in the same call.
    let asked = Instant::now();
    reader.read("counter").await.unwrap();
    assert!(asked.elapsed() < CALL);
    // What a transaction came to, nobody knows; the next one is put to another.
    let lost = counter.try_increase().await.unwrap_err();
    assert!(matches!(lost, ArbiterError::Unknown { .. }), "{lost}");
    let asked = Instant::now();
    counter.try_increase().await.unwrap();
    assert!(asked.elapsed() < Duration::from_millis(500));
    let value = counter.value;

    cluster.thaw(second);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let entry = counter.etcd.read("counter").await.unwrap().unwrap();
    assert_eq!(entry.value, value.to_string().as_bytes());
    assert_eq!(entry.modified, counter.revision);
}

#[tokio::test]
async fn a_client_that_is_new_puts_no_transaction_to_a_frozen_member() {
    let Some(cluster) = Cluster::start(3, Wire::Plain) else {
        return;
    };
    let [leader, second, third] = leader_first(&cluster);
    cluster.freeze(third);
    let etcd = client(&cluster, &[third, second, leader]);
    let asked = Instant::now();
    let transacted = etcd.transact(vec![], vec![put("a", "1")]).await;
    assert!(asked.elapsed() < CALL, "{:?}", asked.elapsed());
    // Members that came up a moment ago, and elect again on a busy machine, lose one now and then.
    match transacted {
        Ok(_) => {}
        Err(ArbiterError::Unknown { at, .. }) => assert_ne!(at, cluster.endpoints()[third]),
        Err(error) => panic!("{error}"),
    }
}

/// The next change that a watch sees, of one that is begun again where it breaks.
async fn seen(
    etcd: &Etcd,
    watch: &mut futures::stream::BoxStream<'static, Result<Changed, ArbiterError>>,
    next: &mut Revision,
) -> Changed {
    let begun = Instant::now();
    loop {
        match watch.next().await.unwrap() {
            Ok(changed) => {
                *next = changed.revision.next();
                return changed;
            }
            Err(error) => {
                eprintln!("{:?}: {error}", begun.elapsed());
                assert!(begun.elapsed() < ELECTED, "{error}");
                *watch = etcd.watch("run/", *next);
            }
        }
    }
}

#[tokio::test]
async fn a_watch_that_breaks_goes_on_at_another_member_without_a_gap() {
    let Some(mut cluster) = Cluster::start(3, Wire::Plain) else {
        return;
    };
    let [leader, second, third] = leader_first(&cluster);
    let writer = client(&cluster, &[leader]);
    let etcd = client(&cluster, &[second, third, leader]);
    let mut next = puts(&writer, "run/a", "0").await;
    let mut watch = etcd.watch("run/", next);
    for n in 0..3 {
        let changed = seen(&etcd, &mut watch, &mut next).await;
        let n = n.to_string();
        assert!(matches!(&changed.changes[..], [Change::Put(e)] if e.value == n.as_bytes()));
        let begun = Instant::now();
        match n.as_str() {
            "0" => cluster.kill(second),
            "1" => {
                cluster.restart(second);
                cluster.freeze(third);
            }
            _ => break,
        }
        let written = n.parse::<u32>().unwrap() + 1;
        puts(&writer, "run/a", &written.to_string()).await;
        let peeked = seen(&etcd, &mut watch, &mut next).await;
        eprintln!("seen {:?} after the watch's member failed", begun.elapsed());
        assert!(
            begun.elapsed() < Duration::from_secs(4),
            "{:?}",
            begun.elapsed()
        );
        // Once more, for the next turn.
        next = peeked.revision;
        watch = etcd.watch("run/", next);
    }
    cluster.thaw(third);
}

#[tokio::test]
async fn with_certificates_all_is_as_without() {
    let Some(mut cluster) = Cluster::start(3, Wire::Certified) else {
        return;
    };
    let [leader, second, third] = leader_first(&cluster);
    let mut counter = Counter::new(client(&cluster, &[leader, second, third])).await;
    let mut watch = counter.etcd.watch("counter", counter.revision.next());
    counter.increase().await;
    assert_eq!(
        watch.next().await.unwrap().unwrap().revision,
        counter.revision
    );
    cluster.kill(leader);
    counter.increase().await;
}

#[tokio::test]
async fn who_shows_a_foreign_certificate_or_none_is_told_so() {
    let Some(cluster) = Cluster::start(1, Wire::Certified) else {
        return;
    };
    let with = |certificate, authority| {
        let mut options = options(&cluster, &[0]);
        let (ours, foreign) = (cluster.papers().unwrap(), cluster.foreign_papers().unwrap());
        let papers = if certificate { ours } else { &foreign };
        let mut tls = common::tls(papers);
        // Any that is not the one of the members.
        tls.authority = match authority {
            true => ours.authority.clone(),
            false => foreign.certificate.clone(),
        };
        options.tls = Some(tls);
        Etcd::new(options).unwrap()
    };
    with(true, true).read("a").await.unwrap();
    for _ in 0..5 {
        let error = with(false, true)
            .transact(vec![], vec![put("a", "")])
            .await
            .unwrap_err();
        assert!(matches!(error, ArbiterError::Unavailable { .. }), "{error}");
        let said = error.to_string();
        eprintln!("{said}");
        assert!(
            said.contains("did not certify") && said.contains("foreign-certificate.pem"),
            "{said}"
        );
    }
    let said = with(true, false).read("a").await.unwrap_err().to_string();
    assert!(
        said.contains("certificate") && said.contains("its authority is to be"),
        "{said}"
    );

    let mut plain = options(&cluster, &[0]);
    let address = plain.endpoints[0].to_string().replace("https", "http");
    plain.endpoints = vec![address.parse().unwrap()];
    let said = Etcd::new(plain)
        .unwrap()
        .read("a")
        .await
        .unwrap_err()
        .to_string();
    eprintln!("{said}");
    assert!(said.contains("https"), "{said}");
}
