#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use proptest::prelude::*;

fn sized(rows: &[(Vec<u32>, f64, String)]) -> Batch {
    let ids: Jagged<u32> = rows.iter().map(|r| &r.0).collect();
    let mask: Jagged<bool> = rows
        .iter()
        .map(|r| r.0.iter().map(|id| id % 2 == 0).collect::<Vec<_>>())
        .collect();
    let logprobs: Jagged<f32> = rows
        .iter()
        .map(|r| r.0.iter().map(|&id| id as f32 / -3.0).collect::<Vec<_>>())
        .collect();
    let mut batch = Batch::new(rows.len())
        .with("ids", ids)
        .and_then(|b| b.with("trainable", mask))
        .and_then(|b| b.with("logprobs", logprobs))
        .and_then(|b| b.with("reward", rows.iter().map(|r| r.1).collect::<Vec<_>>()))
        .and_then(|b| {
            b.with(
                "key",
                rows.iter().map(|r| r.0.len() as u64).collect::<Vec<_>>(),
            )
        })
        .and_then(|b| {
            b.with(
                "answer",
                rows.iter().map(|r| r.2.clone()).collect::<Vec<_>>(),
            )
        })
        .unwrap();
    batch.set_meta("step", Meta::U64(7));
    batch
}

fn batches() -> impl Strategy<Value = Batch> {
    let row = (
        prop::collection::vec(any::<u32>(), 0..6),
        any::<f64>(),
        "[a-z]{0,3}",
    );
    prop::collection::vec(row, 0..24).prop_map(|rows| sized(&rows))
}

fn small() -> Batch {
    sized(&[
        (vec![1, 2, 3], 0.0, "a".into()),
        (vec![], 1.0, "b".into()),
        (vec![4], 0.5, "c".into()),
    ])
}

proptest! {
    #[test]
    fn chunks_concatenated_are_the_batch(batch in batches(), parts in 1_usize..7) {
        let (padded, _) = batch.pad_to_divisor(parts).unwrap();
        let chunks = padded.chunk(parts).unwrap();
        prop_assert!(chunks.iter().all(|c| c.len() == padded.len() / parts));
        prop_assert_eq!(Batch::concat(&chunks).unwrap(), padded);
    }

    #[test]
    fn padding_masked_out_leaves_the_batch(batch in batches(), divisor in 1_usize..9) {
        let (padded, padding) = batch.pad_to_divisor(divisor).unwrap();
        prop_assert!(padded.len().is_multiple_of(divisor) && padding < divisor);
        prop_assert_eq!(padded.len(), batch.len() + padding);
        let mask: Vec<bool> = (0..padded.len()).map(|at| at < batch.len()).collect();
        prop_assert_eq!(&padded.mask(&mask).unwrap(), &batch);
        prop_assert_eq!(padded.truncate(batch.len()), batch);
    }

    #[test]
    fn a_permutation_and_its_inverse_leave_the_batch(
        (batch, order) in batches().prop_flat_map(|batch| {
            let places: Vec<usize> = (0..batch.len()).collect();
            (Just(batch), Just(places).prop_shuffle())
        })
    ) {
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
        prop_assert_eq!(batch.index(&order).unwrap().index(&inverse).unwrap(), batch);
    }

    #[test]
    fn a_mask_and_its_opposite_split_the_batch(
        (batch, mask) in batches().prop_flat_map(|batch| {
            let mask = prop::collection::vec(any::<bool>(), batch.len());
            (Just(batch), mask)
        })
    ) {
        let yes = batch.mask(&mask).unwrap();
        let no = batch.mask(&mask.iter().map(|m| !m).collect::<Vec<_>>()).unwrap();
        let places = |want| (0..mask.len()).filter(move |&at| mask[at] == want);
        let order: Vec<usize> = places.clone()(true).chain(places(false)).collect();
        prop_assert_eq!(Batch::concat(&[yes, no]).unwrap(), batch.index(&order).unwrap());
    }

    #[test]
    fn repeating_keeps_groups_together_or_tiles(batch in batches(), times in 0_usize..4) {
        let tiled = batch.repeat(times, Repeat::Tiled);
        let together = batch.repeat(times, Repeat::Interleaved);
        prop_assert_eq!(tiled.len(), batch.len() * times);
        for at in 0..tiled.len() {
            prop_assert_eq!(tiled.index(&[at]).unwrap(), batch.index(&[at % batch.len()]).unwrap());
            prop_assert_eq!(together.index(&[at]).unwrap(), batch.index(&[at / times]).unwrap());
        }
    }

    #[test]
    fn columns_selected_apart_unite_to_the_batch(batch in batches(), cut in 0_usize..7) {
        let names: Vec<&str> = batch.names().collect();
        let cut = cut.min(names.len());
        let (left, right) = names.split_at(cut);
        let (a, b) = (batch.select(left).unwrap(), batch.select(right).unwrap());
        prop_assert_eq!(&a.union(&b).unwrap(), &batch);
        prop_assert_eq!(batch.union(&a).unwrap(), batch);
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused_and_nothing_panics(
        batch in batches(), number in any::<usize>(), values in prop::collection::vec(any::<f64>(), 0..30)
    ) {
        let got = values.len();
        let mut grown = batch.clone();
        prop_assert_eq!(grown.insert("new", values).is_ok(), got == batch.len());
        prop_assert_eq!(batch.index(&[number]).is_ok(), number < batch.len());
        prop_assert_eq!(batch.mask(&vec![true; got]).is_ok(), got == batch.len());
        let _ = batch.chunk(got);
    }
}

#[test]
fn each_mismatch_names_the_column_and_both_sides() {
    let batch = small();
    let text = |error: BatchError| error.to_string();
    let mut grown = batch.clone();
    assert_eq!(
        text(grown.insert("x", vec![1.0]).unwrap_err()),
        "column `x` has 1 samples, the batch 3"
    );
    assert_eq!(
        text(grown.insert("ids", vec![1_u64, 2, 3]).unwrap_err()),
        "there is a column `ids` already"
    );
    assert_eq!(
        text(batch.f64s("ids").unwrap_err()),
        "column `ids` is u32 per token, expected f64 per sample"
    );
    assert_eq!(
        text(batch.column("id").unwrap_err()),
        "there is no column `id`; there are answer, ids, key, logprobs, reward, trainable"
    );
    assert_eq!(
        text(batch.chunk(2).unwrap_err()),
        "3 samples cannot be cut into 2 equal parts"
    );
    assert_eq!(
        text(batch.chunk(0).unwrap_err()),
        "3 samples cannot be cut into 0 equal parts"
    );
    assert_eq!(
        text(batch.mask(&[true]).unwrap_err()),
        "the mask has 1 entries, the batch 3 samples"
    );
    assert_eq!(
        text(batch.index(&[0, 3]).unwrap_err()),
        "there is no sample 3; the batch has 3"
    );
    assert_eq!(
        text(Batch::concat(&[]).unwrap_err()),
        "no batches to concatenate"
    );
}

#[test]
fn batches_of_another_schema_do_not_join() {
    let batch = small();
    let text = |error: BatchError| error.to_string();
    let fewer = batch.select(&["ids"]).unwrap();
    assert_eq!(
        text(Batch::concat(&[batch.clone(), fewer.clone()]).unwrap_err()),
        "column `answer` is missing in part 1 (3 samples)"
    );
    assert_eq!(
        text(Batch::concat(&[fewer.clone(), batch.clone()]).unwrap_err()),
        "column `answer` is missing in part 0 (3 samples)"
    );
    let mut other = batch.clone();
    other.remove("ids").unwrap();
    other.insert("ids", vec![1.0, 2.0, 3.0]).unwrap();
    let kind = "column `ids` is f64 per sample, expected u32 per token";
    assert_eq!(
        text(Batch::concat(&[batch.clone(), other.clone()]).unwrap_err()),
        kind
    );
    assert_eq!(text(batch.union(&other).unwrap_err()), kind);
    let turned = batch.index(&[2, 1, 0]).unwrap();
    assert_eq!(
        text(batch.union(&turned).unwrap_err()),
        "column `answer` differs between the two batches of 3 samples"
    );
    assert_eq!(
        text(batch.union(&batch.truncate(1)).unwrap_err()),
        "cannot unite 3 samples with 1 (column `answer`)"
    );
    let mut later = fewer.clone();
    later.set_meta("step", Meta::U64(8));
    assert_eq!(
        text(Batch::concat(&[fewer, later]).unwrap_err()),
        "metadata `step` differs between the batches"
    );
}

#[test]
fn token_columns_must_fit_token_by_token() {
    let mut batch = small();
    batch.require_aligned("trainable", "ids", 0).unwrap();
    let after_first: Jagged<f32> = [vec![0.1, 0.2], vec![], vec![]].iter().collect();
    batch.insert("old", after_first).unwrap();
    batch.require_aligned("old", "ids", 1).unwrap();
    assert_eq!(
        batch
            .require_aligned("old", "ids", 0)
            .unwrap_err()
            .to_string(),
        "column `old` has 2 entries in sample 0, expected 3 to fit `ids`"
    );
    assert_eq!(
        batch
            .require_aligned("reward", "ids", 0)
            .unwrap_err()
            .to_string(),
        "column `reward` is f64 per sample, expected one entry per token"
    );
}
