#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::weights::layout::{Layout, LayoutError, Piece, Split, even_cuts};
use crate::weights::rect::Rect;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index as Pick, select};

/// Bytes of one rank, by tensor and position, without any of the plan's arithmetic.
fn held(layout: &Layout, rank: usize) -> Vec<(usize, u64)> {
    let mut bytes = Vec::new();
    for Piece { tensor, rect } in layout.pieces(rank) {
        for row in rect.first_row..rect.first_row + rect.rows {
            for col in rect.first_col..rect.first_col + rect.width {
                bytes.push((*tensor, row * rect.row_bytes + col));
            }
        }
    }
    bytes
}

/// Another value for almost every byte of every tensor.
fn value(name: &str, at: u64) -> u8 {
    xxhash_rust::xxh3::xxh3_64_with_seed(name.as_bytes(), at) as u8
}

fn buffer(layout: &Layout, rank: usize) -> Vec<u8> {
    let bytes = held(layout, rank);
    let of = |(tensor, at): (usize, u64)| value(&layout.tensors()[tensor].name, at);
    bytes.into_iter().map(of).collect()
}

/// Moves the bytes as the plan says; fails unless every target byte is right and written once.
fn carry(from: &Layout, to: &Layout, plan: &ReshardPlan) -> Result<(), TestCaseError> {
    let sources: Vec<_> = (0..from.ranks()).map(|rank| buffer(from, rank)).collect();
    for rank in 0..to.ranks() {
        let wanted = buffer(to, rank);
        let (mut got, mut writes) = (vec![0; wanted.len()], vec![0_u32; wanted.len()]);
        for (source, bytes) in sources.iter().enumerate() {
            let mut last = 0;
            for run in plan.runs(source, rank) {
                prop_assert!(run.dst >= last && run.len > 0 && run.count > 0);
                last = run.dst;
            }
            for part in plan.parts(source, rank) {
                let (src, dst, len) = (part.src as usize, part.dst as usize, part.len as usize);
                got[dst..dst + len].copy_from_slice(&bytes[src..src + len]);
                writes[dst..dst + len].iter_mut().for_each(|n| *n += 1);
            }
        }
        prop_assert!(writes.iter().all(|&n| n == 1), "rank {rank}: {writes:?}");
        prop_assert_eq!(got, wanted, "rank {}", rank);
    }
    Ok(())
}

prop_compose! {
    fn tensor()(
        dtype in select(vec!["F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"]),
        shape in vec(0_u64..9, 0..4),
    ) -> TensorSpec {
        let (name, dtype) = (String::new(), dtype.to_owned());
        let mut spec = TensorSpec { name, dtype, shape, offset: 0, bytes: 0 };
        spec.bytes = spec.size().unwrap();
        spec
    }
}

fn tensors() -> impl Strategy<Value = Vec<TensorSpec>> {
    vec(tensor(), 1..6).prop_map(|mut tensors| {
        let mut offset = 0;
        for (at, spec) in tensors.iter_mut().enumerate() {
            (spec.name, spec.offset) = (format!("t{at}"), offset);
            offset += spec.bytes;
        }
        tensors
    })
}

/// Places, ascending from 0 to `size`.
fn uneven(size: u64, inner: &[Pick]) -> Vec<u64> {
    let place = |pick: &Pick| pick.index(size as usize + 1) as u64;
    let mut cuts: Vec<_> = inner.iter().map(place).chain([0, size]).collect();
    cuts.sort_unstable();
    cuts
}

/// Tensor parallel with another kind of cut for each tensor.
fn mixed(tensors: &[TensorSpec], ranks: usize, picks: &[(Pick, bool, Vec<Pick>)]) -> Layout {
    let split = |spec: &TensorSpec| {
        let at = tensors
            .iter()
            .position(|other| other.name == spec.name)
            .unwrap();
        let (pick, even, inner) = &picks[at % picks.len()];
        let dim = pick.index(spec.shape.len() + 1);
        let Some(&size) = spec.shape.get(dim) else {
            return Split::Whole;
        };
        let inner = &inner[..inner.len().min(ranks - 1)];
        let cuts = match even {
            true => even_cuts(size, inner.len() + 1, 1),
            false => uneven(size, inner),
        };
        Split::Along { dim, cuts }
    };
    Layout::tensor_parallel(tensors, ranks, split).unwrap()
}

/// Any layout that can be a source: it holds every byte.
fn layout(tensors: Vec<TensorSpec>) -> impl Strategy<Value = Layout> {
    let total: u64 = tensors.iter().map(|t| t.bytes).sum();
    let (a, b, c, d) = (tensors.clone(), tensors.clone(), tensors.clone(), tensors);
    let pick = (any::<Pick>(), any::<bool>(), vec(any::<Pick>(), 0..4));
    let plain = prop_oneof![
        (1_usize..5).prop_map(move |ranks| Layout::replicated(&a, ranks).unwrap()),
        vec(any::<Pick>(), 0..5)
            .prop_map(move |inner| Layout::flat(&b, &uneven(total, &inner)).unwrap()),
        (1_usize..6, 1_u64..50)
            .prop_map(move |(ranks, grain)| Layout::data_parallel(&c, ranks, grain).unwrap()),
        (1_usize..5, vec(pick, 1..5)).prop_map(move |(ranks, picks)| mixed(&d, ranks, &picks)),
    ];
    (plain, 1_usize..4, 1_usize..3, 1_u64..40).prop_map(|(layout, ways, copies, grain)| {
        let sharded = layout.sharded(ways).unwrap().copied(copies).unwrap();
        sharded.cut_at(grain)
    })
}

/// Parts that overlap in odd ways, besides a whole copy cut in two.
fn odd(tensors: &[TensorSpec], parts: &[(Pick, [Pick; 5])]) -> Layout {
    let mut ranks = Vec::new();
    for (pick, picks) in parts {
        let tensor = pick.index(tensors.len());
        let total = tensors[tensor].bytes;
        let divisors: Vec<_> = (1..=total).filter(|n| total.is_multiple_of(*n)).collect();
        if divisors.is_empty() {
            continue;
        }
        let row_bytes = divisors[picks[0].index(divisors.len())];
        let range = |size: u64, at: usize| {
            let cuts = uneven(size, &[picks[at], picks[at + 1]]);
            (cuts[1], cuts[2] - cuts[1])
        };
        let ((first_row, rows), (first_col, width)) =
            (range(total / row_bytes, 1), range(row_bytes, 3));
        let rect = Rect {
            row_bytes,
            first_row,
            rows,
            first_col,
            width,
        };
        ranks.push(vec![Piece { tensor, rect }]);
    }
    let halves = Layout::data_parallel(tensors, 2, 1).unwrap();
    ranks.extend((0..2).map(|rank| halves.pieces(rank).to_vec()));
    Layout::custom(tensors, ranks).unwrap()
}

fn two_layouts() -> impl Strategy<Value = (Layout, Layout)> {
    tensors().prop_flat_map(|tensors| (layout(tensors.clone()), layout(tensors)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_target_byte_is_written_exactly_once_whatever_the_layouts((from, to) in two_layouts()) {
        let plan = ReshardPlan::between(&from, &to).unwrap();
        prop_assert_eq!((plan.sources(), plan.targets()), (from.ranks(), to.ranks()));
        carry(&from, &to, &plan)?;
    }

    #[test]
    fn sources_that_overlap_in_odd_ways_still_write_every_byte_once(
        (from, to) in tensors().prop_flat_map(|tensors| {
            let parts = vec((any::<Pick>(), any::<[Pick; 5]>()), 0..5);
            let of = tensors.clone();
            (parts.prop_map(move |parts| odd(&of, &parts)), layout(tensors))
        })
    ) {
        let plan = ReshardPlan::between(&from, &to).unwrap();
        carry(&from, &to, &plan)?;
        // And the other way round, whatever parts the target wants.
        carry(&to, &from, &ReshardPlan::between(&to, &from).unwrap())?;
    }

    #[test]
    fn replicas_share_the_work_evenly_and_no_chunk_comes_from_two(
        tensors in tensors(), ranks in 1_usize..7, grain in 1_u64..64,
    ) {
        let from = Layout::replicated(&tensors, ranks).unwrap();
        let to = Layout::replicated(&tensors, 1).unwrap().cut_at(grain);
        let plan = ReshardPlan::between(&from, &to).unwrap();
        let shares: Vec<_> = (0..ranks).map(|rank| plan.bytes(rank, 0)).collect();
        let fair = to.bytes(0) / ranks as u64;
        for (rank, &share) in shares.iter().enumerate() {
            prop_assert!(share.abs_diff(fair) <= 2 * grain, "{shares:?}");
            let runs = plan.runs(rank, 0);
            prop_assert!(runs.len() <= 1, "{runs:?}");
            let starts = runs.iter().all(|run| run.dst.is_multiple_of(grain) && run.src == run.dst);
            prop_assert!(starts, "{runs:?}");
        }
    }
}

/// `count` tensors of BF16 with `rows` x `cols`.
fn matrices(count: usize, rows: u64, cols: u64) -> Vec<TensorSpec> {
    let bytes = rows * cols * 2;
    let matrix = |at: usize| TensorSpec {
        name: format!("m{at}"),
        dtype: "BF16".into(),
        shape: vec![rows, cols],
        offset: at as u64 * bytes,
        bytes,
    };
    (0..count).map(matrix).collect()
}

fn along(dim: usize, size: u64, parts: usize) -> Split {
    let cuts = even_cuts(size, parts, 1);
    Split::Along { dim, cuts }
}

#[test]
fn columns_of_a_matrix_are_the_bytes_of_its_columns() {
    // Two rows of four BF16: elements 0..8 are bytes 0..16.
    let tensors = matrices(1, 2, 4);
    let columns = Layout::tensor_parallel(&tensors, 2, |_| along(1, 4, 2)).unwrap();
    let of = |rank| {
        held(&columns, rank)
            .into_iter()
            .map(|(_, at)| at)
            .collect::<Vec<_>>()
    };
    assert_eq!(of(0), [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!(of(1), [4, 5, 6, 7, 12, 13, 14, 15]);
    let rows = Layout::tensor_parallel(&tensors, 2, |_| along(0, 2, 2)).unwrap();
    let plan = ReshardPlan::between(&rows, &columns).unwrap();
    let part = |src, dst, len| Part { src, dst, len };
    let parts = |a, b| plan.parts(a, b).collect::<Vec<_>>();
    assert_eq!(parts(0, 0), [part(0, 0, 4)]);
    assert_eq!(parts(0, 1), [part(4, 0, 4)]);
    assert_eq!(parts(1, 0), [part(0, 4, 4)]);
    assert_eq!(parts(1, 1), [part(4, 4, 4)]);
}

#[test]
fn a_column_cut_is_one_strided_run_however_many_rows_there_are() {
    let tensors = matrices(3, 4096, 512);
    let four = Layout::tensor_parallel(&tensors, 4, |_| along(1, 512, 4)).unwrap();
    let eight = Layout::tensor_parallel(&tensors, 8, |_| along(1, 512, 8)).unwrap();
    let plan = ReshardPlan::between(&four, &eight).unwrap();
    for target in 0..8 {
        let runs = plan.runs(target / 2, target);
        assert_eq!(runs.len(), 3, "{runs:?}");
        assert!(runs.iter().all(|run| run.count == 4096 && run.len == 128));
    }
    assert_eq!((plan.bytes(0, 1), plan.bytes(0, 2)), (3 * 4096 * 128, 0));
    assert_eq!(plan.frontiers(0), [0]);
    let whole = Layout::replicated(&tensors, 1).unwrap();
    let plan = ReshardPlan::between(&four, &whole).unwrap();
    assert_eq!(plan.frontiers(0), [0, 256, 512, 768]);
}

#[test]
fn fewer_parts_than_ranks_are_held_by_neighbours_which_share_the_sending() {
    let tensors = matrices(1, 8, 64);
    let heads = Layout::tensor_parallel(&tensors, 4, |_| along(0, 8, 2)).unwrap();
    assert_eq!(heads.pieces(0), heads.pieces(1));
    let one = Layout::replicated(&tensors, 1).unwrap();
    let plan = ReshardPlan::between(&heads, &one).unwrap();
    assert_eq!([0, 1, 2, 3].map(|rank| plan.bytes(rank, 0)), [256; 4]);
}

#[test]
fn whoever_alone_holds_bytes_sends_less_of_what_others_hold_too() {
    let tensors = matrices(2, 4, 64);
    let whole = |tensor| Piece {
        tensor,
        rect: Rect::flat(512, 0, 512),
    };
    let from = Layout::custom(&tensors, vec![vec![whole(0), whole(1)], vec![whole(1)]]).unwrap();
    let to = Layout::replicated(&tensors, 1).unwrap();
    let plan = ReshardPlan::between(&from, &to).unwrap();
    assert_eq!([0, 1].map(|rank| plan.bytes(rank, 0)), [512, 512]);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let (two, three) = (matrices(2, 2, 2), matrices(3, 2, 2));
    let all = |tensors: &[TensorSpec]| Layout::replicated(tensors, 1).unwrap();
    let between =
        |from: &Layout, to: &Layout| ReshardPlan::between(from, to).unwrap_err().to_string();
    assert_eq!(
        between(&all(&two), &all(&three)),
        "the source has no tensor `m2`"
    );
    let other = between(&all(&matrices(1, 4, 1)), &all(&matrices(1, 2, 2)));
    assert_eq!(
        other,
        "tensor `m0` is BF16 [2, 2] in the target, BF16 [4, 1] in the source"
    );
    let half = Piece {
        tensor: 0,
        rect: Rect::flat(8, 0, 5),
    };
    let part = Layout::custom(&two, vec![vec![half]]).unwrap();
    assert_eq!(
        between(&part, &all(&two)),
        "of tensor `m0` no source rank holds 3 bytes that target rank 0 needs"
    );
    let beyond = Piece {
        tensor: 0,
        rect: Rect::flat(8, 4, 9),
    };
    let outside = Layout::custom(&two, vec![vec![], vec![beyond]]);
    assert_eq!(outside, Err(LayoutError::Outside { rank: 1, tensor: 0 }));
    let backwards = Layout::flat(&two, &[0, 9, 7, 16]).unwrap_err();
    assert!(
        backwards
            .to_string()
            .starts_with("the flat buffer cannot be cut"),
        "{backwards}"
    );
    let deep = Layout::tensor_parallel(&two, 2, |_| along(2, 2, 2)).unwrap_err();
    assert_eq!(deep.to_string(), "tensor `m0` has no dimension 2");
    let many = Layout::tensor_parallel(&two, 1, |_| along(0, 2, 2)).unwrap_err();
    assert_eq!(
        many.to_string(),
        "tensor `m0` is cut into 2 parts for 1 ranks"
    );
}

#[test]
fn a_plan_is_made_once_for_a_pair_of_layouts() {
    let tensors = matrices(2, 4, 4);
    let to = Layout::replicated(&tensors, 1).unwrap();
    let of = |ranks| Layout::replicated(&tensors, ranks).unwrap();
    let mut cache = PlanCache::default();
    let first = cache.plan(&of(2), &to).unwrap();
    assert!(Arc::ptr_eq(&first, &cache.plan(&of(2), &to).unwrap()));
    assert!(!Arc::ptr_eq(
        &first,
        &cache.plan(&of(2), &to.clone().cut_at(8)).unwrap()
    ));
    for ranks in 3..3 + PlanCache::MOST {
        cache.plan(&of(ranks), &to).unwrap();
    }
    let again = cache.plan(&of(2), &to).unwrap();
    assert!(!Arc::ptr_eq(&first, &again) && first == again);
}
