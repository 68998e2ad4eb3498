//! Stores with a log, and stores that are made of one.
#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::state::{StateDir, write_private};
use crate::store::{Options, Replica, Store};
use robust_grouplog::{GroupLog, Position, Seal};
use robust_remote::Remote;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const SECRET: &[u8] = &[7; 32];

/// A folder for the log, and one for each machine.
struct Site {
    temp: TempDir,
}

/// A controller on one of its machines.
struct Machine {
    state: StateDir,
    store: Store,
}

impl Site {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        Self { temp }
    }

    fn remote(&self) -> Remote {
        Remote::open(&format!("file://{}/log", self.temp.path().display())).unwrap()
    }

    fn log(&self) -> GroupLog {
        GroupLog::new(&self.remote(), "job", "run")
    }

    fn state(&self, name: &str) -> StateDir {
        StateDir::make(&self.temp.path().join(name)).unwrap()
    }

    async fn open(&self, name: &str) -> Result<Machine, BeginError> {
        let state = self.state(name);
        let logging = Logging::default();
        let around = |commit| logging.around(commit);
        let (store, _) = Store::open_with(state.root(), Options::default(), around).unwrap();
        let log = self.log();
        let seal = Seal::new(SECRET).unwrap();
        let mut carried = Carried::new(&state, Some(seal), store.files().unwrap());
        let (epoch, at) = begin(&log, &store, &mut carried, "file:///log").await?;
        log.become_current().await.unwrap();
        let attached = Attached::new((log, epoch, at), at.number, None, carried, store.dumper());
        logging.attach(attached);
        store.sync().await.unwrap();
        Ok(Machine { state, store })
    }

    async fn restored(&self, name: &str) -> Result<StateDir, RestoreError> {
        let state = self.state(name);
        let seal = Seal::new(SECRET).unwrap();
        restore((&self.remote(), "job"), &state, Some(&seal)).await?;
        restored(&state)?;
        Ok(state)
    }
}

/// All that a store has, but for where it stands.
fn contents(state: &StateDir) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (store, _) = Store::open(state.root()).unwrap();
    let mut all = Vec::new();
    loop {
        let after = all.last().map(|(key, _): &(Vec<u8>, _)| key.clone());
        match store.dumper().after(after.as_deref()).unwrap() {
            some if some.is_empty() => return all,
            some => all.extend(some),
        }
    }
}

async fn write(machine: &Machine, n: u64) {
    let value = vec![u8::try_from(n % 251).unwrap(); 40_000];
    machine.store.put_for_tests(n, value).await.unwrap();
}

#[tokio::test]
async fn another_machine_has_all_that_was_acknowledged_and_the_same_files() {
    let site = Site::new();
    let first = site.open("a").await.unwrap();
    for n in 0..20 {
        write(&first, n).await;
    }
    write_private(&first.state.authority_key(), b"secret of the job").unwrap();
    write_private(&first.state.job_revision(3), b"{}").unwrap();
    let revoked = b"operator.alice.4000000000\n";
    write_private(&first.state.revoked_persons(), revoked).unwrap();
    write(&first, 20).await;
    let state = first.state.clone();
    drop(first);
    let other = site.restored("b").await.unwrap();
    assert_eq!(contents(&state), contents(&other));
    let key = other.authority_key();
    assert_eq!(std::fs::read(&key).unwrap(), b"secret of the job");
    assert_eq!(
        std::fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(std::fs::read(other.job_revision(3)).unwrap(), b"{}");
    let known = std::fs::read(other.revoked_persons()).unwrap();
    assert_eq!(known, revoked);
    let in_log = find(&site.temp.path().join("log"), b"secret of the job");
    assert!(!in_log, "a secret lies open in the log");
}

#[tokio::test]
async fn a_log_that_somebody_writes_is_seen_to_move_and_one_that_nobody_writes_is_not() {
    let site = Site::new();
    let (remote, every) = (site.remote(), Duration::from_millis(10));
    let long = (Duration::from_secs(60), every);
    let short = (Duration::from_millis(50), every);
    assert!(!moves((&remote, "job"), short).await.unwrap(), "no log");
    let first = site.open("a").await.unwrap();
    assert!(!moves((&remote, "job"), short).await.unwrap(), "nobody");
    let seen = std::cell::Cell::new(false);
    let looks = async {
        let moved = moves((&remote, "job"), long).await.unwrap();
        seen.set(true);
        moved
    };
    // To the end of each: a store that is closed waits for its last write.
    let writes = async {
        for n in (0..).take_while(|_| !seen.get()) {
            write(&first, n).await;
        }
    };
    let (moved, ()) = tokio::join!(looks, writes);
    assert!(moved);
}

fn find(folder: &Path, text: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => find(&path, text),
            false => std::fs::read(&path)
                .unwrap()
                .windows(text.len())
                .any(|w| w == text),
        }
    })
}

#[tokio::test]
async fn a_controller_that_returns_goes_on_and_so_does_the_one_after_it() {
    let site = Site::new();
    for life in 0..4 {
        let machine = site.open("a").await.unwrap();
        for n in 0..5 {
            write(&machine, life * 5 + n).await;
        }
    }
    let other = site.restored("b").await.unwrap();
    assert_eq!(contents(&site.state("a")), contents(&other));
}

#[tokio::test]
async fn a_job_that_began_without_a_log_gets_one_with_all_that_was_before() {
    let site = Site::new();
    let state = site.state("a");
    {
        let (store, _) = Store::open(state.root()).unwrap();
        for n in 0..5 {
            store.put_for_tests(n, vec![1; 100]).await.unwrap();
        }
    }
    drop(site.open("a").await.unwrap());
    let other = site.restored("b").await.unwrap();
    assert_eq!(contents(&state), contents(&other));
}

#[tokio::test]
async fn writes_without_the_log_for_a_while_are_in_it_when_it_is_back() {
    let site = Site::new();
    let machine = site.open("a").await.unwrap();
    write(&machine, 1).await;
    let state = machine.state.clone();
    drop(machine);
    {
        let (store, _) = Store::open(state.root()).unwrap();
        store.put_for_tests(2, vec![2; 100]).await.unwrap();
    }
    write(&site.open("a").await.unwrap(), 3).await;
    let other = site.restored("b").await.unwrap();
    assert_eq!(contents(&state), contents(&other));
}

#[tokio::test]
async fn who_was_passed_by_does_not_go_on() {
    let site = Site::new();
    let first = site.open("a").await.unwrap();
    write(&first, 1).await;
    drop(first);
    site.restored("b").await.unwrap();
    let second = site.open("b").await.unwrap();
    write(&second, 2).await;
    write(&second, 3).await;
    let Err(error) = site.open("a").await else {
        panic!("it went on");
    };
    assert!(matches!(error, BeginError::Elsewhere { .. }), "{error}");
    assert!(error.to_string().contains("--restore-from"), "{error}");
}

#[tokio::test]
async fn a_controller_that_another_one_follows_acknowledges_nothing_more() {
    let site = Site::new();
    let first = site.open("a").await.unwrap();
    write(&first, 1).await;
    site.restored("b").await.unwrap();
    // The same term as somebody else's: only one of both finds the group's place empty.
    let at = first.store.place_in_log().unwrap().0.unwrap();
    let (bytes, next) = robust_grouplog::Group {
        number: at.number + 1,
        writes: Vec::new(),
    }
    .encode(at.epoch, &at);
    site.log().put(&next, bytes).await.unwrap();
    let refused = first.store.put_for_tests(2, vec![1]).await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("another controller")
    );
}

#[tokio::test]
async fn a_log_that_is_away_is_waited_for_and_said() {
    let site = Site::new();
    let machine = site.open("a").await.unwrap();
    write(&machine, 1).await;
    // Where the folder was, there is a file: nothing can be put there, whoever runs this.
    let (log, aside) = (site.temp.path().join("log"), site.temp.path().join("aside"));
    std::fs::rename(&log, &aside).unwrap();
    std::fs::write(&log, b"").unwrap();
    let mut condition = machine.store.condition();
    let write = machine.store.put_for_tests(2, vec![2]);
    tokio::pin!(write);
    let is_away =
        |c: &crate::store::Condition| matches!(c, crate::store::Condition::LogAway { .. });
    tokio::select! {
        _ = &mut write => panic!("it was acknowledged"),
        told = condition.wait_for(is_away) => drop(told.unwrap()),
    }
    std::fs::remove_file(&log).unwrap();
    std::fs::rename(&aside, &log).unwrap();
    tokio::time::timeout(Duration::from_secs(20), write)
        .await
        .unwrap()
        .unwrap();
    let is_sound = |c: &crate::store::Condition| *c == crate::store::Condition::Sound;
    condition.wait_for(is_sound).await.unwrap();
    drop(machine);
    let other = site.restored("b").await.unwrap();
    assert_eq!(contents(&site.state("a")), contents(&other));
}

#[tokio::test]
async fn a_state_directory_with_a_job_is_not_restored_over() {
    let site = Site::new();
    drop(site.open("a").await.unwrap());
    let error = site.restored("a").await.unwrap_err();
    assert!(matches!(error, RestoreError::NotEmpty { .. }), "{error}");
    let nothing = Site::new();
    let error = nothing.restored("a").await.unwrap_err();
    assert!(matches!(error, RestoreError::NoLog { .. }), "{error}");
}

#[tokio::test]
async fn another_secret_opens_nothing() {
    let site = Site::new();
    let machine = site.open("a").await.unwrap();
    write_private(&machine.state.authority_key(), b"key").unwrap();
    machine.store.sync().await.unwrap();
    let state = site.state("b");
    let other = Seal::new(&[8; 32]).unwrap();
    let restoring = restore((&site.remote(), "job"), &state, Some(&other)).await;
    let error = restoring.unwrap_err();
    assert!(error.to_string().contains("store.secret_file"), "{error}");
}

#[tokio::test]
async fn a_file_that_was_dropped_since_comes_not_back_with_who_had_it() {
    let site = Site::new();
    let machine = site.open("a").await.unwrap();
    let before = machine.state.authority_before_key();
    write_private(&machine.state.authority_key(), b"new").unwrap();
    write_private(&before, b"old").unwrap();
    machine.store.sync().await.unwrap();
    let other = site.state("b");
    write_private(&other.authority_before_key(), b"of an earlier term").unwrap();
    std::fs::remove_file(&before).unwrap();
    machine.store.sync().await.unwrap();
    let place = machine.store.place_in_log().unwrap().0.unwrap();
    let mut replica = Replica::open(other.root()).unwrap();
    newest(&site.log(), &mut replica, &place).await.unwrap();
    write_files(&replica, &other, Some(&Seal::new(SECRET).unwrap())).unwrap();
    assert_eq!(std::fs::read(other.authority_key()).unwrap(), b"new");
    assert!(!other.authority_before_key().exists());
}

#[tokio::test]
async fn a_base_that_was_made_and_not_noted_is_made_again_and_the_job_goes_on() {
    let site = Site::new();
    let machine = site.open("a").await.unwrap();
    write(&machine, 1).await;
    let place = machine.store.place_in_log().unwrap().0.unwrap();
    let state = machine.state.clone();
    drop(machine);
    // As after a group that failed: the base is in the log, and the daemon ended before anything else.
    let at = Position::of_base("run", place.epoch + 1, place.number);
    let none = || Ok::<_, robust_grouplog::LogError>(Vec::new());
    site.log()
        .put_base(at, none, async { Ok(()) })
        .await
        .unwrap();
    write(&site.open("a").await.unwrap(), 2).await;
    let other = site.restored("b").await.unwrap();
    assert_eq!(contents(&state), contents(&other));
}

#[tokio::test]
async fn a_life_that_nobody_ended_is_not_begun_anew_over() {
    let site = Site::new();
    drop(site.open("a").await.unwrap());
    no_other_life(&site.remote(), "job", "run").await.unwrap();
    let error = no_other_life(&site.remote(), "job", "another")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("--restore-from"), "{error}");
    let error = no_life(&site.remote(), "job").await.unwrap_err();
    assert!(matches!(error, BeginError::NoHead { .. }), "{error}");
    no_life(&site.remote(), "other job").await.unwrap();
}

#[tokio::test]
async fn what_was_half_restored_is_restored_by_the_same_command() {
    let site = Site::new();
    let machine = site.open("a").await.unwrap();
    write_private(&machine.state.authority_key(), b"key").unwrap();
    write(&machine, 1).await;
    let state = site.state("b");
    let other = Seal::new(&[8; 32]).unwrap();
    let restoring = restore((&site.remote(), "job"), &state, Some(&other)).await;
    assert!(matches!(restoring, Err(RestoreError::Seal(_))));
    assert!(state.restoring().exists());
    site.restored("b").await.unwrap();
    assert!(!state.restoring().exists());
    assert_eq!(std::fs::read(state.authority_key()).unwrap(), b"key");
}

#[tokio::test]
async fn a_store_that_is_damaged_is_read_from_the_log_anew() {
    let site = Site::new();
    let machine = site.open("a").await.unwrap();
    write(&machine, 1).await;
    let place = machine.store.place_in_log().unwrap().0.unwrap();
    let state = site.state("b");
    let mut replica = Replica::open(state.root()).unwrap();
    newest(&site.log(), &mut replica, &place).await.unwrap();
    drop(replica);
    // More was acknowledged there than it has.
    std::fs::write(
        state.store().join("acknowledged"),
        format!("{:020}", 1u64 << 40),
    )
    .unwrap();
    let mut replica = Replica::open(state.root()).unwrap();
    assert!(replica.is_empty());
    newest(&site.log(), &mut replica, &place).await.unwrap();
    drop((replica, machine));
    assert_eq!(contents(&site.state("a")), contents(&state));
}

#[tokio::test]
async fn a_replica_follows_group_by_group_and_begins_anew_where_it_has_to() {
    let site = Site::new();
    let machine = site.open("a").await.unwrap();
    write(&machine, 1).await;
    let log = site.log();
    let place = |m: &Machine| m.store.place_in_log().unwrap().0.unwrap();
    let mut replica = Replica::open(site.state("b").root()).unwrap();
    newest(&log, &mut replica, &place(&machine)).await.unwrap();
    write(&machine, 2).await;
    write(&machine, 3).await;
    newest(&log, &mut replica, &place(&machine)).await.unwrap();
    assert_eq!(replica.at(), Some(place(&machine)));
    // It has something that never counted: of its own term as a leader, say.
    let stray = Position::of_base("run", 9, place(&machine).number);
    replica.stand_at_for_tests(stray);
    write(&machine, 4).await;
    newest(&log, &mut replica, &place(&machine)).await.unwrap();
    assert_eq!(replica.at(), Some(place(&machine)));
    drop((replica, machine));
    assert_eq!(contents(&site.state("a")), contents(&site.state("b")));
}
