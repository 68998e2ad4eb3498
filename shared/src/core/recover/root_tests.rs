//! Cases as they come up, each with the sentence that an operator reads.
use super::*;
use crate::core::recover::testimony::Seen;
use crate::ids::{Role, Step};
use crate::phase::Phase;

const REDUCING: &[&str] = &["ncclAllReduce", "all_reduce (distributed_c10d.py)"];
const LOADING: &[&str] = &["read", "next_batch (data.py)", "main (train.py)"];

fn rank(index: u32, phase: Phase, step: u64, answer: Answer) -> Testimony {
    Testimony {
        who: InstanceId {
            role: Role::Trainer,
            index,
        },
        incarnation: Incarnation(u64::from(index) + 10),
        node: format!("n{}", index / 2),
        phase,
        step: Step(step),
        answer,
        text: String::new(),
    }
}

fn seen(state: ProcessState, frames: &[&str]) -> Answer {
    Answer::Seen(Seen {
        state,
        frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
    })
}

/// A rank in its own loop, of which only its stack says where it is.
fn at(index: u32, frames: &[&str]) -> Testimony {
    rank(index, Phase::Loop, 0, seen(ProcessState::Lives, frames))
}

fn updating(index: u32, state: ProcessState) -> Testimony {
    rank(index, Phase::Update, 4, seen(state, &[]))
}

fn engine(state: ProcessState) -> Testimony {
    Testimony {
        who: InstanceId {
            role: Role::Rollout,
            index: 1,
        },
        phase: Phase::Generating,
        ..rank(1, Phase::Generating, 0, seen(state, &[]))
    }
}

fn says(ranks: &[Testimony], awaited: &[Testimony]) -> (Option<u32>, String) {
    let root = root(ranks, awaited);
    (root.one().map(|(who, _)| who.index), root.to_string())
}

#[test]
fn a_rank_that_is_stopped_while_its_peers_exchange_gradients_is_the_root() {
    let mut ranks = [at(0, REDUCING), at(1, LOADING), at(2, REDUCING)];
    ranks[1].answer = seen(ProcessState::Stopped, LOADING);
    let (index, why) = says(&ranks, &[]);
    assert_eq!(index, Some(1));
    assert_eq!(
        why,
        "trainer-1 is stopped (by a signal or a debugger), in next_batch (data.py), loop, while \
         trainer-0, trainer-2 are in all_reduce, loop"
    );
    // Stopped in the exchange itself it is in the same place as the others, and the root all the same.
    let same = [
        updating(0, ProcessState::Lives),
        updating(1, ProcessState::Stopped),
    ];
    assert_eq!(says(&same, &[]).0, Some(1));
}

#[test]
fn a_rank_in_its_data_loader_is_the_root_of_its_peers_wait_be_they_one_or_many() {
    for peers in [1, 3] {
        let mut ranks: Vec<_> = (0..peers).map(|n| at(n, REDUCING)).collect();
        ranks.push(at(peers, LOADING));
        let (index, why) = says(&ranks, &[]);
        assert_eq!(index, Some(peers), "{why}");
        let begins = format!("trainer-{peers} is not in the exchange, in next_batch (data.py)");
        assert!(why.starts_with(&begins), "{why}");
    }
}

#[test]
fn all_wait_in_the_exchange_since_one_of_them_died() {
    let mut ranks: Vec<_> = (0..3).map(|n| at(n, REDUCING)).collect();
    ranks.push(rank(3, Phase::Loop, 0, seen(ProcessState::Dead, &[])));
    let (index, why) = says(&ranks, &[]);
    assert_eq!(index, Some(3));
    assert!(
        why.starts_with("trainer-3 is dead, in loop, while "),
        "{why}"
    );
}

#[test]
fn a_rank_of_which_nothing_came_is_the_root_if_its_peers_answered() {
    let ranks = [
        updating(0, ProcessState::Lives),
        rank(1, Phase::Update, 4, Answer::Late),
    ];
    let (index, why) = says(&ranks, &[]);
    assert_eq!(index, Some(1));
    assert_eq!(
        why,
        "trainer-1 is without an answer, in update of step 4, while trainer-0 is in update of step 4"
    );
    // One that nobody waited for any more is not mute.
    let cut = [
        updating(0, ProcessState::Lives),
        rank(1, Phase::Update, 4, Answer::Unheard),
    ];
    assert_eq!(says(&cut, &[]).0, None);
}

#[test]
fn two_odd_ranks_of_four_are_both_named_and_none_is_accused() {
    let ranks = [
        at(0, REDUCING),
        at(1, LOADING),
        at(2, REDUCING),
        at(3, LOADING),
    ];
    let (index, why) = says(&ranks, &[]);
    assert_eq!(index, None);
    assert_eq!(
        why,
        "trainer-1, trainer-3 are not in the exchange, in next_batch (data.py), loop, while \
         trainer-0, trainer-2 are in all_reduce, loop; nothing tells which of them it is"
    );
}

#[test]
fn of_ranks_that_fall_silent_together_their_machine_is_named() {
    let ranks = [
        updating(0, ProcessState::Lives),
        updating(1, ProcessState::Lives),
        rank(2, Phase::Update, 4, Answer::Late),
        rank(3, Phase::Update, 4, Answer::Late),
    ];
    let (index, why) = says(&ranks, &[]);
    assert_eq!(index, None);
    assert!(why.contains("all of them on node n1"), "{why}");
}

#[test]
fn without_evidence_nobody_is_named() {
    let none = [
        rank(0, Phase::Update, 4, Answer::Late),
        rank(1, Phase::Update, 4, Answer::Late),
    ];
    let expected = "not known: no evidence of anybody came";
    assert_eq!(says(&none, &[]), (None, expected.to_owned()));
    assert_eq!(says(&[], &[]), (None, expected.to_owned()));
}

#[test]
fn a_rank_that_lags_behind_or_is_alone_ahead_is_the_root_and_of_two_the_one_behind() {
    let lives = || seen(ProcessState::Lives, &[]);
    let behind = [
        rank(0, Phase::Update, 4, lives()),
        rank(1, Phase::OldLogprob, 4, lives()),
    ];
    let (index, why) = says(&behind, &[]);
    assert_eq!(index, Some(1));
    assert!(
        why.starts_with("trainer-1 is behind, in old_logprob"),
        "{why}"
    );
    let ahead = [
        rank(0, Phase::Snapshot, 4, lives()),
        rank(1, Phase::Update, 4, lives()),
        rank(2, Phase::Update, 4, lives()),
    ];
    assert_eq!(says(&ahead, &[]).0, Some(0));
    // Two at two places of the same phase: neither is behind.
    let (index, why) = says(&[at(0, LOADING), at(1, &["save (ckpt.py)"])], &[]);
    assert_eq!(index, None);
    assert_eq!(
        why,
        "not known: trainer-0, trainer-1 are in different places"
    );
}

#[test]
fn native_frames_that_differ_at_one_moment_accuse_nobody() {
    let ranks = [at(0, &["epoll_wait"]), at(1, &["futex"]), at(2, &["futex"])];
    let (index, why) = says(&ranks, &[]);
    assert_eq!(index, None);
    assert_eq!(why, "nobody is set apart: all are in loop");
}

#[test]
fn one_that_waits_in_the_kernel_is_the_root_where_all_are_in_the_same_place() {
    let ranks = [
        updating(0, ProcessState::Lives),
        updating(1, ProcessState::InKernel),
    ];
    assert_eq!(says(&ranks, &[]).0, Some(1));
    let all = [0, 1].map(|n| updating(n, ProcessState::InKernel));
    assert_eq!(says(&all, &[]).0, None);
}

#[test]
fn ranks_that_are_alike_wait_for_an_engine_that_is_stopped_and_for_no_other() {
    let ranks = [at(0, &["post (client.py)"]), at(1, &["post (client.py)"])];
    let stopped = root(&ranks, &[engine(ProcessState::Stopped)]);
    let who = stopped.one().map(|(who, _)| who.to_string());
    assert_eq!(who.as_deref(), Some("rollout-1"), "{stopped}");
    let ends = "whoever waits for it is in post (client.py), loop";
    assert!(stopped.to_string().ends_with(ends), "{stopped}");
    let well = root(&ranks, &[engine(ProcessState::Lives)]);
    assert_eq!(well.one(), None, "{well}");
    // A rank that is stopped itself explains more.
    let mut ranks = ranks;
    ranks[0].answer = seen(ProcessState::Stopped, &[]);
    let both = root(&ranks, &[engine(ProcessState::Stopped)]);
    assert_eq!(both.one().map(|(who, _)| who.role), Some(Role::Trainer));
}
