//! What the virtual etcd does is what the real one does: each sentence is asked of both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use robust_arbiter::{
    Arbiter, ArbiterError, Change, Compare, LeaseId, Revision, Transacted, Trouble, Virtual, Write,
};
use robust_etcd::{Cluster, Wire};

use common::{absent, client, created, done, modified, put, puts};

/// One of the two.
enum World {
    Virtual(Virtual),
    Real(Cluster),
}

impl World {
    fn client(&self) -> Arc<dyn Arbiter> {
        match self {
            Self::Virtual(etcd) => Arc::new(etcd.client()),
            Self::Real(cluster) => Arc::new(client(cluster, &[0])),
        }
    }

    async fn pass(&self, time: Duration) {
        match self {
            Self::Virtual(etcd) => etcd.advance(time),
            Self::Real(_) => tokio::time::sleep(time).await,
        }
    }

    fn compact(&self, revision: Revision) {
        match self {
            Self::Virtual(etcd) => etcd.compact(revision),
            Self::Real(cluster) => cluster.compact(revision.0),
        }
    }
}

macro_rules! both {
    ($($sentence:ident)*) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $sentence() {
                super::$sentence(super::World::Virtual(super::Virtual::new())).await;
            })*
        }
        mod real {
            $(#[tokio::test]
            async fn $sentence() {
                if let Some(cluster) = super::Cluster::start(1, super::Wire::Plain) {
                    super::$sentence(super::World::Real(cluster)).await;
                }
            })*
        }
    };
}

both! {
    what_is_put_is_read_with_the_change_that_made_it
    a_prefix_is_read_in_order_with_the_revision_to_watch_from
    a_refused_transaction_changes_nothing_and_says_what_is_there
    a_key_that_was_deleted_and_put_again_is_another_one
    a_transaction_without_effect_is_no_change
    what_makes_no_sense_is_refused
    what_is_too_large_is_refused
    keys_vanish_with_their_lease
    a_deposed_leader_is_refused_however_late_it_asks
    a_lease_ends_unless_it_is_kept_alive
    a_lease_that_is_over_is_not_kept_alive_and_binds_nothing
    a_watch_sees_all_from_its_revision_in_order
    a_watch_shows_a_transaction_whole_and_only_its_prefix
    a_watch_that_begins_before_what_is_kept_says_so
}

async fn what_is_put_is_read_with_the_change_that_made_it(world: World) {
    let arbiter = world.client();
    assert_eq!(arbiter.read("a").await.unwrap(), None);
    let first = puts(&*arbiter, "a", "1").await;
    let second = puts(&*arbiter, "a", "2").await;
    assert!(second > first);
    let entry = arbiter.read("a").await.unwrap().unwrap();
    assert_eq!(entry.value, b"2");
    assert_eq!((entry.created, entry.modified), (first, second));
    assert_eq!(entry.lease, None);
}

async fn a_prefix_is_read_in_order_with_the_revision_to_watch_from(world: World) {
    let arbiter = world.client();
    for key in ["run/b", "run0", "run/a", "run", "run/ÿ"] {
        puts(&*arbiter, key, key).await;
    }
    let (entries, revision) = arbiter.read_prefix("run/").await.unwrap();
    let keys: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["run/a", "run/b", "run/ÿ"]);
    let (all, _) = arbiter.read_prefix("").await.unwrap();
    assert_eq!(all.len(), 5);
    assert_eq!(
        arbiter.read_prefix("none").await.unwrap(),
        (vec![], revision)
    );
    let next = puts(&*arbiter, "run/c", "").await;
    assert_eq!(next, revision.next());
    let seen = arbiter.watch("run/", revision.next()).next().await.unwrap();
    assert_eq!(seen.unwrap().revision, next);
}

async fn a_refused_transaction_changes_nothing_and_says_what_is_there(world: World) {
    let arbiter = world.client();
    let revision = puts(&*arbiter, "a", "1").await;
    let compares = vec![absent("a"), absent("b"), modified("a", revision)];
    let writes = vec![put("a", "2"), put("b", "2")];
    let refused = arbiter.transact(compares, writes.clone()).await.unwrap();
    let entry = arbiter.read("a").await.unwrap().unwrap();
    assert_eq!(entry.value, b"1");
    assert_eq!(refused, Transacted::Refused { found: vec![entry] });
    let compares = vec![absent("b"), modified("a", revision), created("a", revision)];
    done(arbiter.transact(compares, writes).await.unwrap());
    let wrong = vec![modified("a", revision)];
    let refused = arbiter.transact(wrong, vec![put("a", "3")]).await.unwrap();
    assert!(matches!(refused, Transacted::Refused { found } if found[0].value == b"2"));
    for revision in [revision, Revision(0)] {
        for missing in [created("c", revision), modified("c", revision)] {
            let refused = arbiter.transact(vec![missing], vec![]).await.unwrap();
            assert_eq!(refused, Transacted::Refused { found: vec![] });
        }
    }
}

async fn a_key_that_was_deleted_and_put_again_is_another_one(world: World) {
    let arbiter = world.client();
    let first = puts(&*arbiter, "a", "1").await;
    let delete = Write::Delete {
        key: "a".to_owned(),
    };
    done(
        arbiter
            .transact(vec![created("a", first)], vec![delete])
            .await
            .unwrap(),
    );
    assert_eq!(arbiter.read("a").await.unwrap(), None);
    let second = puts(&*arbiter, "a", "1").await;
    let late = arbiter
        .transact(vec![created("a", first)], vec![put("a", "2")])
        .await
        .unwrap();
    assert!(matches!(late, Transacted::Refused { found } if found[0].created == second));
}

async fn a_transaction_without_effect_is_no_change(world: World) {
    let arbiter = world.client();
    let revision = puts(&*arbiter, "a", "1").await;
    let delete = Write::Delete {
        key: "b".to_owned(),
    };
    let nothing = arbiter
        .transact(vec![absent("b")], vec![delete])
        .await
        .unwrap();
    assert_eq!(nothing, Transacted::Done(revision));
    let nothing = arbiter.transact(vec![], vec![]).await.unwrap();
    assert_eq!(nothing, Transacted::Done(revision));
    assert_eq!(puts(&*arbiter, "a", "1").await, revision.next());
}

async fn what_makes_no_sense_is_refused(world: World) {
    let arbiter = world.client();
    let refused = |result: Result<Transacted, ArbiterError>| match result {
        Err(ArbiterError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    let twice = vec![put("a", "1"), put("a", "2")];
    let why = refused(arbiter.transact(vec![], twice).await);
    assert!(why.contains("duplicate key"), "{why}");
    let many = (0..129).map(|n| put(&format!("a{n}"), "")).collect();
    let why = refused(arbiter.transact(vec![], many).await);
    assert!(why.contains("too many operations"), "{why}");
    let nameless = vec![put("", "1")];
    let why = refused(arbiter.transact(vec![], nameless).await);
    assert!(why.contains("key is not provided"), "{why}");
    let read = arbiter.read("").await;
    assert!(
        matches!(read, Err(ArbiterError::Refused { .. })),
        "{read:?}"
    );
    assert_eq!(arbiter.read_prefix("").await.unwrap().0, []);
}

async fn what_is_too_large_is_refused(world: World) {
    let arbiter = world.client();
    let sized = |bytes| {
        vec![Write::Put {
            key: "a".to_owned(),
            value: vec![0; bytes],
            lease: None,
        }]
    };
    done(arbiter.transact(vec![], sized(1 << 20)).await.unwrap());
    // The second is more than gRPC takes.
    for bytes in [(1 << 20) + (3 << 18), 8 << 20] {
        let refused = arbiter.transact(vec![], sized(bytes)).await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, ArbiterError::Refused { .. }), "{refused}");
        eprintln!("{refused}");
    }
    let read = arbiter.read("a").await.unwrap().unwrap();
    assert_eq!(read.value.len(), 1 << 20);
}

fn bound(key: &str, lease: LeaseId) -> Write {
    Write::Put {
        key: key.to_owned(),
        value: b"bound".to_vec(),
        lease: Some(lease),
    }
}

async fn keys_vanish_with_their_lease(world: World) {
    let arbiter = world.client();
    let lease = arbiter.grant(Duration::from_secs(60)).await.unwrap();
    assert_eq!(lease.ttl, Duration::from_secs(60));
    let keys = ["a", "b", "c", "d"];
    let writes = keys.map(|key| bound(key, lease.id)).to_vec();
    let revision = done(arbiter.transact(vec![], writes).await.unwrap());
    let entry = arbiter.read("a").await.unwrap().unwrap();
    assert_eq!(entry.lease, Some(lease.id));
    // What is put without a lease is bound no longer.
    let freed = puts(&*arbiter, "b", "free").await;
    assert_eq!(freed, revision.next());
    arbiter.revoke(lease.id).await.unwrap();
    arbiter.revoke(lease.id).await.unwrap();
    let (left, after) = arbiter.read_prefix("").await.unwrap();
    let left: Vec<_> = left.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!((left, after), (vec!["b"], freed.next()));
}

async fn a_deposed_leader_is_refused_however_late_it_asks(world: World) {
    let (old, new) = (world.client(), world.client());
    let leads = |name: &str, lease| {
        let value = name.into();
        let key = "leader".to_owned();
        vec![Write::Put {
            key,
            value,
            lease: Some(lease),
        }]
    };
    let lease = old.grant(Duration::from_secs(60)).await.unwrap();
    let campaign = old
        .transact(vec![absent("leader")], leads("old", lease.id))
        .await;
    let epoch = done(campaign.unwrap());
    let head = puts(&*old, "head", "0").await;
    let fenced = |epoch, head| vec![created("leader", epoch), modified("head", head)];
    let head = old
        .transact(fenced(epoch, head), vec![put("head", "1")])
        .await;
    let head = done(head.unwrap());

    new.revoke(lease.id).await.unwrap();
    let late = old
        .transact(fenced(epoch, head), vec![put("head", "2")])
        .await
        .unwrap();
    assert!(matches!(late, Transacted::Refused { found } if found[0].value == b"1"));
    let lease = new.grant(Duration::from_secs(60)).await.unwrap();
    let campaign = new
        .transact(vec![absent("leader")], leads("new", lease.id))
        .await;
    let next = done(campaign.unwrap());
    assert!(next > epoch);
    let late = old
        .transact(fenced(epoch, head), vec![put("head", "2")])
        .await
        .unwrap();
    assert!(matches!(late, Transacted::Refused { found } if found.len() == 2));
    done(
        new.transact(fenced(next, head), vec![put("head", "2")])
            .await
            .unwrap(),
    );
}

async fn a_lease_ends_unless_it_is_kept_alive(world: World) {
    let arbiter = world.client();
    let lease = arbiter.grant(Duration::from_millis(1500)).await.unwrap();
    assert_eq!(lease.ttl, Duration::from_secs(2));
    done(
        arbiter
            .transact(vec![], vec![bound("a", lease.id)])
            .await
            .unwrap(),
    );
    for _ in 0..3 {
        world.pass(Duration::from_secs(1)).await;
        let left = arbiter.keep_alive(lease.id).await.unwrap();
        assert_eq!(left, lease.ttl);
    }
    assert!(arbiter.read("a").await.unwrap().is_some());
    // etcd looks for leases that are over every half second.
    world.pass(Duration::from_secs(4)).await;
    assert_eq!(arbiter.read("a").await.unwrap(), None);
}

async fn a_lease_that_is_over_is_not_kept_alive_and_binds_nothing(world: World) {
    let arbiter = world.client();
    let lease = arbiter.grant(Duration::from_secs(60)).await.unwrap().id;
    arbiter.revoke(lease).await.unwrap();
    let over = Err(ArbiterError::LeaseOver { lease });
    assert_eq!(
        arbiter.keep_alive(lease).await,
        over.map(|()| Duration::ZERO)
    );
    let binds = arbiter
        .transact(vec![absent("a")], vec![put("b", ""), bound("a", lease)])
        .await;
    assert_eq!(binds, Err(ArbiterError::LeaseOver { lease }));
    assert_eq!(arbiter.read_prefix("").await.unwrap().0, []);
    // What is compared comes first.
    let revision = puts(&*arbiter, "c", "").await;
    let binds = arbiter
        .transact(vec![absent("c")], vec![bound("a", lease)])
        .await
        .unwrap();
    assert!(matches!(binds, Transacted::Refused { found } if found[0].modified == revision));
    let never = LeaseId(4711);
    assert_eq!(arbiter.revoke(never).await, Ok(()));
    assert!(arbiter.keep_alive(never).await.is_err());
}

async fn a_watch_sees_all_from_its_revision_in_order(world: World) {
    let (arbiter, other) = (world.client(), world.client());
    puts(&*arbiter, "run/a", "before").await;
    let from = puts(&*arbiter, "run/a", "0").await;
    let mut watch = arbiter.watch("run/", from);
    let mut expected = vec![from];
    for n in 1..50 {
        expected.push(puts(&*other, &format!("run/{}", n % 3), &n.to_string()).await);
    }
    let lease = other.grant(Duration::from_secs(60)).await.unwrap().id;
    expected.push(done(
        other
            .transact(vec![], vec![bound("run/z", lease)])
            .await
            .unwrap(),
    ));
    other.revoke(lease).await.unwrap();
    for (n, revision) in expected.iter().enumerate() {
        let seen = watch.next().await.unwrap().unwrap();
        assert_eq!(seen.revision, *revision);
        assert!(matches!(&seen.changes[..], [Change::Put(entry)]
            if n == 50 || entry.value == n.to_string().as_bytes()));
    }
    let seen = watch.next().await.unwrap().unwrap();
    assert_eq!(
        seen.changes,
        [Change::Deleted {
            key: "run/z".to_owned()
        }]
    );
}

async fn a_watch_shows_a_transaction_whole_and_only_its_prefix(world: World) {
    let arbiter = world.client();
    let (_, revision) = arbiter.read_prefix("").await.unwrap();
    let mut watch = arbiter.watch("run/", revision.next());
    let writes = ["run/c", "other", "run/a", "run/b"].map(|key| put(key, "1"));
    let first = done(arbiter.transact(vec![], writes.to_vec()).await.unwrap());
    puts(&*arbiter, "other", "2").await;
    let writes = vec![
        Write::Delete {
            key: "run/a".to_owned(),
        },
        put("run/c", "2"),
    ];
    let second = done(arbiter.transact(vec![], writes).await.unwrap());
    for (revision, expected) in [
        (first, vec!["run/c", "run/a", "run/b"]),
        (second, vec!["run/a", "run/c"]),
    ] {
        let seen = watch.next().await.unwrap().unwrap();
        let keys: Vec<_> = seen.changes.iter().map(Change::key).collect();
        assert_eq!((seen.revision, keys), (revision, expected));
    }
}

async fn a_watch_that_begins_before_what_is_kept_says_so(world: World) {
    let arbiter = world.client();
    let first = puts(&*arbiter, "a", "1").await;
    let second = puts(&*arbiter, "a", "2").await;
    world.compact(second);
    let mut late = arbiter.watch("a", first);
    assert_eq!(
        late.next().await,
        Some(Err(ArbiterError::Compacted { kept: second }))
    );
    assert_eq!(late.next().await, None);
    let mut in_time = arbiter.watch("a", second);
    assert_eq!(in_time.next().await.unwrap().unwrap().revision, second);
    // What is there is there nevertheless.
    let entry = arbiter.read("a").await.unwrap().unwrap();
    assert_eq!(entry.created, first);
}

#[tokio::test]
async fn a_virtual_client_fails_as_it_is_told() {
    let etcd = Virtual::new();
    let arbiter = etcd.client();
    let mut watch = arbiter.watch("", Revision(1));
    let write = |n: &str| (Vec::<Compare>::new(), vec![put("a", n)]);
    let value = || async {
        etcd.client()
            .read("a")
            .await
            .unwrap()
            .map(|entry| entry.value)
    };
    for (trouble, value_after, unknown) in [
        (Trouble::Unreachable, None, false),
        (Trouble::RequestsLost, None, true),
        (Trouble::AnswersLost, Some(b"1".to_vec()), true),
    ] {
        arbiter.set_trouble(trouble);
        let (compares, writes) = write("1");
        let error = arbiter.transact(compares, writes).await.unwrap_err();
        assert_eq!(
            matches!(error, ArbiterError::Unknown { .. }),
            unknown,
            "{error}"
        );
        assert!(matches!(
            arbiter.read("a").await,
            Err(ArbiterError::Unavailable { .. })
        ));
        assert_eq!(value().await, value_after);
    }
    let broken = watch.next().await;
    assert!(
        matches!(broken, Some(Err(ArbiterError::WatchBroken { .. }))),
        "{broken:?}"
    );
    assert_eq!(watch.next().await, None);
    arbiter.set_trouble(Trouble::None);
    assert_eq!(arbiter.read("a").await.unwrap().unwrap().value, b"1");
}
