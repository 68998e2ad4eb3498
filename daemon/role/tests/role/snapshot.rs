//! Snapshots of a training state that is only bytes.

use std::path::Path;

use robust_ckpt::slot::{Image, Taken};
use robust_proto::v1::SnapshotReply;
use robust_role::snapshot::{Slots, State};
use robust_shared::ids::{Generation, Step};

const ELEMENTS: usize = 1000;
const RANKS: u32 = 3;

/// A tensor of this content.
fn tensor(content: u8) -> Vec<u8> {
    let bytes = 0..ELEMENTS * 4;
    bytes.map(|at| (at / 16) as u8 ^ content).collect()
}

fn write(slots: &mut Slots, step: u64, generation: u64) -> SnapshotReply {
    let content = step as u8 * 3;
    let [weights, m, v] = [0, 1, 2].map(|number| tensor(content + number));
    let state = State {
        step,
        generation,
        adam_step: step + 100,
        weights: &weights.as_slice(),
        m: &m.as_slice(),
        v: &v.as_slice(),
    };
    slots.write(&state).unwrap()
}

/// The parts of the three tensors that an image has.
fn read(snapshot: &SnapshotReply) -> Vec<u8> {
    let taken = Taken {
        step: Step(snapshot.step),
        generation: Generation(snapshot.generation),
        bytes: snapshot.bytes,
    };
    let image = Image::open(Path::new(&snapshot.path), taken).unwrap();
    let data = image.header().unwrap().data;
    let mut bytes = vec![0; (image.bytes() - data) as usize];
    let mut part = bytes.as_mut_slice();
    image.restore(data, &mut [&mut part], None).unwrap();
    bytes
}

#[test]
fn the_shards_of_all_ranks_are_the_state_and_the_step_before_stays_whole() {
    let folder = tempfile::tempdir().unwrap();
    let ranks = || (0..RANKS).map(|rank| Slots::new(folder.path(), rank, RANKS));
    let mut slots: Vec<Slots> = ranks().collect();
    for slots in &mut slots {
        slots.prepare(ELEMENTS).unwrap();
    }
    let taken = |slots: &mut Vec<Slots>, step| -> Vec<SnapshotReply> {
        slots.iter_mut().map(|s| write(s, step, 1)).collect()
    };
    let (first, second) = (taken(&mut slots, 1), taken(&mut slots, 2));
    for (step, snapshots) in [(1, first), (2, second)] {
        let mut tensors = [const { Vec::new() }; 3];
        for snapshot in &snapshots {
            assert_eq!(snapshot.adam_step, Some(step + 100));
            let shard = read(snapshot);
            let parts = shard.chunks(shard.len() / 3);
            for (tensor, part) in tensors.iter_mut().zip(parts) {
                tensor.extend_from_slice(part);
            }
        }
        for (number, found) in (0..).zip(tensors) {
            assert_eq!(found, tensor(step as u8 * 3 + number), "step {step}");
        }
    }
}

#[test]
fn a_gang_that_was_replaced_in_a_slot_does_not_write_there_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let [mut old, mut new] = [1, 2].map(|_| Slots::new(folder.path(), 0, 1));
    write(&mut old, 2, 1);
    let newer = write(&mut new, 2, 2);
    let bytes = tensor(0);
    let state = State {
        step: 4,
        generation: 1,
        adam_step: 4,
        weights: &bytes.as_slice(),
        m: &bytes.as_slice(),
        v: &bytes.as_slice(),
    };
    let refused = old.write(&state).unwrap_err().to_string();
    assert!(
        refused.contains("generation 2 writes here now"),
        "{refused}"
    );
    assert_eq!(read(&newer)[..16], tensor(6)[..16]);
}

#[test]
fn a_state_whose_tensors_differ_in_length_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut slots = Slots::new(folder.path(), 0, 1);
    let (weights, short) = (tensor(0), vec![0; 4]);
    let state = State {
        step: 1,
        generation: 1,
        adam_step: 1,
        weights: &weights.as_slice(),
        m: &weights.as_slice(),
        v: &short.as_slice(),
    };
    let refused = slots.write(&state).unwrap_err().to_string();
    assert!(
        refused.contains("shorter than the snapshot's part"),
        "{refused}"
    );
}
