//! What the daemon does when a part of what it keeps is gone: its database, or the machine's memory.
use super::*;
use robust_shared::ids::{Step, TrajectoryId};
use robustd::store::Store;

/// What the daemon is left with: its database damaged, or gone.
enum Left {
    Damaged,
    Nothing,
}

#[tokio::test]
async fn without_its_database_the_job_goes_on_from_the_newest_state_and_ends_who_was_there() {
    for left in [Left::Damaged, Left::Nothing] {
        let site = Site::new(1000);
        let daemon = site.start();
        let seen = site.wait_for("fifth step", |s| s.step >= 5).await.step;
        daemon.signal(nix::sys::signal::Signal::SIGKILL);
        drop(daemon);
        let before = site.roles();
        // Stopped: it will never link and be told that it is fenced.
        let stopped = nix::unistd::Pid::from_raw(before[0]);
        nix::sys::signal::kill(stopped, nix::sys::signal::Signal::SIGSTOP).unwrap();
        let why = match left {
            Left::Damaged => {
                fs::write(site.state().join("db/db"), b"this is no database").unwrap();
                "is set aside as "
            }
            Left::Nothing => {
                fs::remove_dir_all(site.state().join("db")).unwrap();
                let state = fs::canonicalize(site.state()).unwrap();
                fs::remove_dir_all(robustd::state::snapshot_dir(&state)).unwrap();
                "the store knows of no job"
            }
        };
        let found = robust_ckpt::newest_complete(&site.state().join("ckpt"));
        let newest = found.unwrap().checkpoint.unwrap().step.0;
        let daemon = site.start();
        let status = site
            .wait_for("more steps", |s| s.step >= seen.max(newest) + 2)
            .await;
        let now = site.roles();
        assert!(
            before.iter().all(|pid| !now.contains(pid)),
            "{}",
            site.log()
        );
        let old = before.len() as u64;
        let fresh = |r: &v1::RoleStatus| r.incarnation > old;
        assert!(
            status.roles.iter().all(fresh),
            "no number twice: {status:#?}"
        );
        let log = site.log();
        let rest = log.split("The job goes on from the ").nth(1);
        let rest = rest.unwrap_or_else(|| panic!("{log}"));
        let words = rest.split(" of step ").nth(1).unwrap();
        let from: u64 = words.split(':').next().unwrap().parse().unwrap();
        match left {
            // I-4: what memory still has is not done anew.
            Left::Damaged => assert!(from >= seen, "{from} < {seen}: {log}"),
            Left::Nothing => assert_eq!(from, newest, "{log}"),
        }
        assert!(log.contains(why), "{log}");
        assert!(
            log.contains(&format!("is at step {from}: from own ")),
            "{log}"
        );
        daemon.signal(nix::sys::signal::Signal::SIGTERM);
        let (code, out) = daemon.output();
        assert_eq!(code, 143, "{}", site.log());
        assert_eq!(steps_printed(&out).first(), Some(&(from + 1)));
        assert_ended_cleanly(&site);
        let id = TrajectoryId {
            batch: newest,
            group: 1,
            member: 1,
        };
        let (store, _) = Store::open(&site.state()).unwrap();
        let again = store.mark_consumed(vec![(Step(newest + 1), vec![id])]);
        let refusal = again.await.unwrap_err().to_string();
        let by = format!("step {newest} did");
        assert!(
            refusal.ends_with(&by),
            "what its manifest names is on record: {refusal}"
        );
    }
}

#[tokio::test]
async fn a_machine_that_was_started_anew_trains_the_lost_steps_again() {
    use nix::sys::signal::Signal::SIGKILL;
    let site = Site::new(8);
    // Slow enough that the kill comes before the next step.
    let env = [(fake::UPDATE_MS, "500")];
    let job = fs::read_to_string(site.file("job.toml")).unwrap();
    let job = job.replace("every = 2", "every = 3");
    fs::write(site.file("job.toml"), job).unwrap();
    let acknowledged = site.file("acknowledged").display().to_string();
    let log = (fake::LOG, acknowledged.as_str());
    let daemon = site.start_env(&[env[0], log]);
    let published = |s: &v1::Status| (s.step, s.weight_version) == (5, 5);
    site.wait_for("two steps after a checkpoint", published)
        .await;
    daemon.signal(SIGKILL);
    drop(daemon);
    while let roles @ [_, ..] = site.roles().as_slice() {
        for pid in roles {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), SIGKILL);
        }
    }
    let state = fs::canonicalize(site.state()).unwrap();
    fs::remove_dir_all(robustd::state::snapshot_dir(&state)).unwrap();
    let mut daemon = site.start_env(&[env[0], log]);
    assert_eq!(
        daemon.child.wait().unwrap().code(),
        Some(0),
        "{}",
        site.log()
    );
    let log = site.log();
    for part in [
        "going back to step 3 (own disk) and training 2 of the committed steps again",
        "step 4 of 5 trained again, with the same figures",
        "from own disk at step 3, then steps 4 to 5 were trained again from their trajectories, with \
         the same figures to the bit; passed over: own memory at step 5: ",
        "v5 is bit for bit what was published before",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let mut evidence = crash::Evidence::default();
    assert_eq!(evidence.published(&site), 8);
    evidence.check(&site, "at the end");
}
