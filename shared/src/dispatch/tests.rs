#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::calls::{OldLogprobs, Publish, Region, Served, Shard, Snapshot, Update, UpdateMetrics};
use super::*;
use crate::batch::{Batch, Jagged};
use crate::ids::{Generation, Step, WeightVersion};
use crate::weights::{Canary, Manifest};
use proptest::prelude::*;

/// Sample `i` has the ids `[i, i, ...]`, `i % 3 + 1` of them, of which all but the first were generated.
fn samples(count: usize) -> Batch {
    let rows = |i: usize| vec![i as u32; i % 3 + 1];
    let ids: Jagged<u32> = (0..count).map(rows).collect();
    let mask = |i: usize| (0..i % 3 + 1).map(|at| at > 0).collect::<Vec<_>>();
    let trainable: Jagged<bool> = (0..count).map(mask).collect();
    Batch::new(count)
        .with("ids", ids)
        .and_then(|b| b.with("trainable", trainable))
        .unwrap()
}

fn group(ranks: u32) -> WorkerGroup {
    WorkerGroup::new(ranks).unwrap()
}

/// What a rank would reply: the ids as numbers, one per token after the first.
fn logprobs_of(args: &OldLogprobs) -> Vec<Vec<f32>> {
    let ids = args.samples.u32_tokens("ids").unwrap();
    ids.rows()
        .map(|row| row.iter().skip(1).map(|&id| id as f32).collect())
        .collect()
}

#[test]
fn the_table_says_how_every_call_fans_out() {
    let lines: Vec<String> = TABLE
        .iter()
        .map(|r| format!("{}: {}", r.name, r.dispatch))
        .collect();
    assert_eq!(
        lines,
        [
            "restore: one to all",
            "old: split",
            "update: split",
            "snapshot: one to all",
            "publish: one to all",
        ]
    );
}

proptest! {
    #[test]
    fn split_and_gathered_logprobs_are_those_of_the_whole_batch(
        count in 0_usize..30, ranks in 1_u32..6, reverse in any::<bool>()
    ) {
        let whole = OldLogprobs { step: Step(1), samples: samples(count) };
        let (sends, gather) = group(ranks).plan::<OldLogprobs>(whole.clone()).unwrap();
        prop_assert_eq!(gather.called(), (0..ranks).collect::<Vec<_>>());
        let sizes: Vec<usize> = sends.iter().map(|(_, args)| args.samples.len()).collect();
        prop_assert!(sizes.iter().all(|&size| size == sizes[0]));
        let mut replies: Vec<_> = sends.iter().map(|(r, args)| (*r, logprobs_of(args))).collect();
        if reverse {
            replies.reverse();
        }
        let expected: Jagged<f32> = logprobs_of(&whole).iter().collect();
        prop_assert_eq!(gather.finish(replies).unwrap(), expected);
    }

    #[test]
    fn padding_adds_no_trainable_token_to_an_update(count in 1_usize..30, ranks in 1_u32..6) {
        let whole = Update::new(Step(1), samples(count)).unwrap();
        let total = whole.batch_trainable_tokens;
        let (sends, _) = group(ranks).plan::<Update>(whole).unwrap();
        let trainable = |args: &Update| {
            let mask = args.samples.bool_tokens("trainable").unwrap();
            mask.values().iter().filter(|&&t| t).count() as u64
        };
        prop_assert_eq!(sends.iter().map(|(_, args)| trainable(args)).sum::<u64>(), total);
        prop_assert!(sends.iter().all(|(_, args)| args.batch_trainable_tokens == total));
    }
}

#[test]
fn every_rank_must_have_the_same_figures_of_an_update() {
    let figures = |loss, grad_norm| UpdateMetrics {
        loss,
        grad_norm,
        clip_fraction: Some(0.25),
        entropy: Some(1.0),
        kl: Some(0.5),
    };
    let gather = |one, zero| {
        let update = Update::new(Step(1), samples(4)).unwrap();
        let gather = group(2).plan::<Update>(update).unwrap().1;
        gather
            .finish(vec![(1, one), (0, zero)])
            .map_err(|e| e.to_string())
    };
    let same = figures(2.0, 3.0);
    assert_eq!(gather(same, same), Ok(same));
    let error = "update: rank 1 has gradient norm 3.5, rank 0 has 3".to_owned();
    assert_eq!(gather(figures(2.0, 3.5), same), Err(error));
    let error = "update: rank 1 has loss 1, rank 0 has 2".to_owned();
    assert_eq!(gather(figures(1.0, 3.0), same), Err(error));
    let silent = UpdateMetrics {
        entropy: None,
        ..same
    };
    let error = "update: rank 1 has entropy 0, rank 0 has 1".to_owned();
    assert_eq!(gather(silent, same), Err(error));
    assert_eq!(gather(silent, silent), Ok(silent));
    let none_clipped = UpdateMetrics {
        clip_fraction: Some(0.0),
        ..same
    };
    let of_a_former_build = UpdateMetrics {
        clip_fraction: None,
        ..same
    };
    assert_eq!(gather(of_a_former_build, none_clipped), Ok(none_clipped));
}

#[test]
fn a_figure_that_no_rank_of_a_program_says_stays_unsaid() {
    let figures = |loss, entropy| UpdateMetrics {
        loss,
        entropy,
        ..UpdateMetrics::default()
    };
    let gather = |zero, one| {
        let update = Update::new(Step(1), samples(4)).unwrap();
        let gather = group(2)
            .plan::<calls::Train>(calls::Train { update })
            .unwrap()
            .1;
        gather.finish(vec![(0, zero), (1, one)]).unwrap()
    };
    let both = gather(figures(1.0, Some(2.0)), figures(3.0, Some(4.0)));
    assert_eq!((both.loss, both.entropy, both.kl), (2.0, Some(3.0), None));
    let one = gather(figures(1.0, None), figures(3.0, Some(4.0)));
    assert_eq!(one.entropy, Some(4.0), "of the rank that says it");
    assert_eq!(gather(figures(1.0, None), figures(3.0, None)).entropy, None);
}

#[test]
fn a_version_is_published_only_when_all_ranks_have_the_same_bytes() {
    let region = |n| Region {
        key: vec![n],
        bytes: 0,
        patches: Vec::new(),
    };
    let served = |n, version| Served {
        manifest: Manifest::build(WeightVersion(version), &[], 4, vec![]).unwrap(),
        region: region(n),
        canary: (n == 1).then(Canary::default),
    };
    let plan = || {
        group(2)
            .plan::<Publish>(Publish {
                version: WeightVersion(1),
            })
            .unwrap()
            .1
    };
    let published = plan()
        .finish(vec![(0, served(0, 1)), (1, served(1, 1))])
        .unwrap();
    assert_eq!(published.regions, [region(0), region(1)]);
    assert!(published.canary.is_some(), "of the rank that computed it");
    let error = plan()
        .finish(vec![(0, served(0, 1)), (1, served(1, 2))])
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("publish: rank 1 has manifest "),
        "{error}"
    );
}

#[test]
fn replies_must_come_once_from_each_rank_called() {
    let shard = |step| Shard {
        step: Step(step),
        path: "p".into(),
        bytes: 1,
        xxh3: Some(2),
        generation: Generation(1),
        adam_step: None,
    };
    let plan = || {
        group(2)
            .plan::<Snapshot>(Snapshot { step: Step(1) })
            .unwrap()
            .1
    };
    let text = |replies| plan().finish(replies).unwrap_err().to_string();
    assert_eq!(text(vec![(0, shard(1))]), "snapshot: no reply of rank 1");
    assert_eq!(
        text(vec![(0, shard(1)), (0, shard(1))]),
        "snapshot: unexpected reply of rank 0"
    );
    assert_eq!(
        text(vec![(7, shard(1))]),
        "snapshot: unexpected reply of rank 7"
    );
    assert_eq!(
        text(vec![(0, shard(1)), (1, shard(2))]),
        "snapshot: rank 1 has step 2, rank 0 has 1"
    );
}

#[test]
fn a_rank_that_replies_for_other_samples_than_its_own_is_named() {
    let whole = OldLogprobs {
        step: Step(1),
        samples: samples(4),
    };
    let (_, gather) = group(2).plan::<OldLogprobs>(whole).unwrap();
    let error = gather
        .finish(vec![(0, vec![vec![]; 2]), (1, vec![vec![]; 3])])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "old: rank 1 replied for 3 samples, it got 2"
    );
}

/// Calls that use the two fan-outs that the trainer's table does not need.
#[derive(Debug)]
struct Each;
#[derive(Debug)]
struct Zero;

impl WorkerCall for Each {
    type Whole = Vec<u8>;
    type Args = u8;
    type Reply = u8;
    type Output = Vec<u8>;
    type Fan = AllToAll;
    const NAME: &'static str = "each";
    const GATHERS: &'static str = "all";

    fn gather(replies: Vec<u8>, _: &Shape) -> Result<Vec<u8>, DispatchError> {
        Ok(replies)
    }
}

impl WorkerCall for Zero {
    type Whole = u8;
    type Args = u8;
    type Reply = u8;
    type Output = Vec<u8>;
    type Fan = RankZero;
    const NAME: &'static str = "zero";
    const GATHERS: &'static str = "all";

    fn gather(replies: Vec<u8>, _: &Shape) -> Result<Vec<u8>, DispatchError> {
        Ok(replies)
    }
}

#[test]
fn all_to_all_gives_each_rank_its_own_and_rank_zero_calls_one() {
    let (sends, gather) = group(3).plan::<Each>(vec![4, 5, 6]).unwrap();
    assert_eq!(sends, [(0, 4), (1, 5), (2, 6)]);
    assert_eq!(
        gather.finish(vec![(2, 6), (0, 4), (1, 5)]),
        Ok(vec![4, 5, 6])
    );
    let error = group(3).plan::<Each>(vec![4]).unwrap_err();
    assert_eq!(error.to_string(), "each: 1 arguments for 3 ranks");
    let (sends, gather) = group(3).plan::<Zero>(9).unwrap();
    assert_eq!(sends, [(0, 9)]);
    assert_eq!(gather.finish(vec![(0, 9)]), Ok(vec![9]));
    assert_eq!(WorkerGroup::new(0), Err(DispatchError::NoRanks));
}
