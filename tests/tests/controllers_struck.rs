//! Several controllers of one real job that trains, struck in every way that their machines and nets have, while whatever
//! they answer is written down and compared with the store that is left.
//!
//! Each test strikes a few times; $ROBUST_HA_ROUNDS is for more (`make soak-ha`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::Signal;
use robust_tests::{Partition, Trial, now_us};
use std::thread::sleep;
use std::time::Duration;

/// How often a test strikes that needs so many times for itself.
fn rounds(least: usize) -> usize {
    let wanted = std::env::var("ROBUST_HA_ROUNDS").ok();
    let wanted = wanted.map(|n| n.parse().expect("ROBUST_HA_ROUNDS is a number"));
    wanted.unwrap_or(0).max(least)
}

/// Of these the one for this round.
fn seconds(of: &[f64], round: usize) -> Duration {
    Duration::from_secs_f64(of[round % of.len()])
}

#[test]
fn the_death_of_the_leaders_whole_machine_restarts_no_role_of_another_one() {
    let Some(mut trial) = Trial::on_machines() else {
        return;
    };
    for _ in 0..rounds(2) {
        let (leader, epoch, step) = trial.leader();
        let elsewhere = trial.all.roles_elsewhere(leader);
        let at_us = now_us();
        trial.all.kill_machine(leader);
        let shown = trial.another_leads(epoch, at_us);
        assert_ne!(shown.answer.by, leader);
        trial.goes_on_from(step, 2);
        let lived = trial.all.roles_elsewhere(leader);
        let all_lived = elsewhere.iter().all(|role| lived.contains(role));
        assert!(all_lived, "{elsewhere:?}\n{lived:?}\n{}", trial.all.logs());
        trial.all.boot(leader);
    }
    trial.agrees();
}

#[test]
fn machines_that_are_parted_in_any_way_have_one_leader_and_lose_nothing() {
    let Some(mut trial) = Trial::on_machines() else {
        return;
    };
    for round in 0..rounds(Partition::ALL.len()) {
        let how = Partition::ALL[round % Partition::ALL.len()];
        let (leader, epoch, step) = trial.leader();
        let roles = trial.all.roles();
        let at_us = now_us();
        println!("{at_us}: {how:?}, from {leader} in epoch {epoch} at step {step}");
        trial.all.part(how, leader, true);
        match how.keeps_the_leader() {
            Some(false) => drop(trial.another_leads(epoch, at_us)),
            _ => sleep(seconds(&[2.0, 4.0, 1.0, 6.0], round / Partition::ALL.len())),
        }
        trial.all.part(how, leader, false);
        trial.goes_on_from(step, 2);
        let (after, now, _) = trial.leader();
        if how.keeps_the_leader() == Some(true) {
            let logs = trial.all.logs();
            assert_eq!((after, now), (leader, epoch), "{how:?}\n{logs}");
        }
        assert_eq!(roles, trial.all.roles(), "{how:?}\n{}", trial.all.logs());
    }
    trial.agrees();
}

#[test]
fn a_controller_that_lost_its_disk_while_it_was_dead_follows_and_may_lead() {
    let Some(mut trial) = Trial::start() else {
        return;
    };
    let roles = trial.all.roles();
    for round in 0..rounds(2) {
        let (leader, epoch, step) = trial.leader();
        let (follower, at_us) = ((leader + 1) % trial.all.count(), now_us());
        let struck = if round % 2 == 0 { leader } else { follower };
        trial.all.signal(struck, Signal::SIGKILL);
        trial.all.lose_disk(struck);
        if struck == leader {
            trial.another_leads(epoch, at_us);
        }
        trial.all.launch(struck);
        trial.goes_on_from(step, 2);
    }
    // Whoever has lost its disk leads in the end.
    let (leader, epoch, step) = trial.leader();
    let others: Vec<usize> = (0..trial.all.count()).filter(|w| *w != leader).collect();
    let at_us = now_us();
    trial.all.signal(leader, Signal::SIGKILL);
    let shown = trial.another_leads(epoch, at_us);
    assert!(others.contains(&shown.answer.by));
    trial.goes_on_from(step, 2);
    trial.all.launch(leader);
    assert_eq!(roles, trial.all.roles(), "{}", trial.all.logs());
    trial.agrees();
}

#[test]
fn a_log_that_is_away_stops_the_job_and_loses_nothing_of_it() {
    let Some(mut trial) = Trial::start() else {
        return;
    };
    let roles = trial.all.roles();
    for round in 0..rounds(1) {
        let (_, _, step) = trial.leader();
        trial.all.log_is_away(true);
        sleep(seconds(&[3.0, 1.0, 8.0, 20.0], round));
        trial.all.log_is_away(false);
        trial.goes_on_from(step, 3);
    }
    assert_eq!(roles, trial.all.roles(), "{}", trial.all.logs());
    trial.agrees();
}

#[test]
fn a_leader_that_was_frozen_does_nothing_in_its_own_name_when_it_goes_on() {
    let Some(mut trial) = Trial::start() else {
        return;
    };
    let roles = trial.all.roles();
    for round in 0..rounds(2) {
        let (leader, _, step) = trial.leader();
        trial.all.signal(leader, Signal::SIGSTOP);
        sleep(seconds(&[2.0, 0.5, 1.0, 4.0, 8.0, 20.0], round));
        trial.all.signal(leader, Signal::SIGCONT);
        trial.goes_on_from(step, 3);
    }
    assert_eq!(roles, trial.all.roles(), "{}", trial.all.logs());
    trial.agrees();
}

#[test]
fn members_of_etcd_that_come_and_go_stop_the_job_at_most() {
    let Some(mut trial) = Trial::start() else {
        return;
    };
    let roles = trial.all.roles();
    for round in 0..rounds(2) {
        let (_, _, step) = trial.leader();
        let (one, other) = (round % 3, (round + 1) % 3);
        trial.all.etcd.kill(one);
        trial.all.etcd.kill(other);
        sleep(seconds(&[1.0, 3.0, 8.0, 20.0], round));
        trial.all.etcd.restart(one);
        trial.all.etcd.restart(other);
        trial.goes_on_from(step, 3);
    }
    assert_eq!(roles, trial.all.roles(), "{}", trial.all.logs());
    trial.agrees();
}
