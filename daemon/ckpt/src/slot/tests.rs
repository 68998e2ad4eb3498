//! What a reader may take for a snapshot, whatever became of the writer.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::CkptError;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const BYTES: usize = 3 * PAGE + 17;

fn image(step: u64) -> Vec<u8> {
    (0..BYTES).map(|i| (i as u64 * 31 + step) as u8).collect()
}

fn taken(step: u64, generation: u64) -> Taken {
    Taken {
        step: Step(step),
        generation: Generation(generation),
        bytes: BYTES as u64,
    }
}

fn write(slot: &mut Slot, step: u64, generation: u64) -> Result<Taken, CkptError> {
    let image = image(step);
    let (head, rest) = image.split_at(PAGE);
    slot.write((Step(step), Generation(generation)), step, &[&head, &rest])
}

fn slot(dir: &TempDir) -> (PathBuf, Slot) {
    let path = dir.path().join("slot");
    let slot = Slot::open(&path, BYTES as u64).unwrap();
    (path, slot)
}

fn read(path: &Path, wanted: Taken, xxh3: Option<u64>) -> Result<Vec<u8>, String> {
    let image = Image::open(path, wanted).map_err(|e| e.to_string())?;
    let mut bytes = vec![0; BYTES];
    let (head, rest) = bytes.split_at_mut(100);
    let restored = image.restore(0, &mut [&mut &mut *head, &mut &mut *rest], xxh3);
    restored.map_err(|e| e.to_string())?;
    Ok(bytes)
}

#[test]
fn a_snapshot_reads_back_and_says_what_it_is_of() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut slot) = slot(&dir);
    let error = read(&path, taken(1, 1), None).unwrap_err();
    assert!(error.contains("(nothing was written yet)"), "{error}");
    for step in [2, 4] {
        assert_eq!(write(&mut slot, step, 1).unwrap(), taken(step, 1));
        assert_eq!(read(&path, taken(step, 1), None).unwrap(), image(step));
        let digest = Some(xxh3_64(&image(step)));
        assert_eq!(read(&path, taken(step, 1), digest).unwrap(), image(step));
        let seal = *Image::open(&path, taken(step, 1)).unwrap().seal().unwrap();
        assert_eq!((seal.adam_step, seal.sequence), (step, step));
    }
    let error = read(&path, taken(2, 1), None).unwrap_err();
    let said =
        format!("it is {BYTES} bytes of step 4 by gang g1, not {BYTES} bytes of step 2 by gang g1");
    assert!(error.contains(&said), "{error}");
    let error = read(&path, taken(4, 1), Some(7)).unwrap_err();
    assert!(error.contains("it is corrupt"), "{error}");
}

#[test]
fn a_slot_whose_writer_stopped_at_any_place_is_no_snapshot_until_it_is_written_again() {
    struct Fails(usize);
    impl SnapshotMemory for Fails {
        fn bytes(&self) -> usize {
            BYTES - PAGE
        }
        fn copy_to(&self, _: usize, to: &mut [u8]) -> Result<(), String> {
            to[..self.0].fill(9);
            Err("the device is gone".to_owned())
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, mut slot) = slot(&dir);
    write(&mut slot, 2, 1).unwrap();
    for stops in [0, 1, BYTES - PAGE] {
        let head = image(4);
        let of = (Step(4), Generation(1));
        let error = slot
            .write(of, 4, &[&&head[..PAGE], &Fails(stops)])
            .unwrap_err();
        assert!(error.to_string().contains("the device is gone"), "{error}");
        for step in [2, 4] {
            let error = read(&path, taken(step, 1), None).unwrap_err();
            assert!(error.contains("(it is being written)"), "{error}");
        }
    }
    // The next life of the gang.
    drop(slot);
    let mut slot = Slot::open(&path, BYTES as u64).unwrap();
    write(&mut slot, 4, 2).unwrap();
    assert_eq!(read(&path, taken(4, 2), None).unwrap(), image(4));
}

#[test]
fn what_was_read_while_the_slot_was_written_over_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut slot) = slot(&dir);
    write(&mut slot, 2, 1).unwrap();
    let reader = Image::open(&path, taken(2, 1)).unwrap();
    reader.check_unchanged().unwrap();
    write(&mut slot, 4, 1).unwrap();
    let error = reader.check_unchanged().unwrap_err().to_string();
    assert!(error.contains("(it was overwritten)"), "{error}");
    // Even by the very same step: the bytes may be of two writes.
    let reader = Image::open(&path, taken(4, 1)).unwrap();
    write(&mut slot, 4, 1).unwrap();
    assert!(reader.check_unchanged().is_err());
}

#[test]
fn a_late_writer_of_an_older_gang_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut old) = slot(&dir);
    write(&mut old, 2, 1).unwrap();
    let mut new = Slot::open(&path, BYTES as u64).unwrap();
    write(&mut new, 4, 2).unwrap();
    let error = write(&mut old, 4, 1).unwrap_err().to_string();
    assert!(error.contains("generation 2 writes here now"), "{error}");
    assert_eq!(read(&path, taken(4, 2), None).unwrap(), image(4));
    write(&mut new, 6, 2).unwrap();
    // A job that lost its memory counts its gangs anew: what it found when it came is no gang of its.
    let mut anew = Slot::open(&path, BYTES as u64).unwrap();
    write(&mut anew, 2, 1).unwrap();
    assert_eq!(read(&path, taken(2, 1), None).unwrap(), image(2));
}

#[test]
fn a_broken_seal_is_no_snapshot_whatever_bit_is_flipped() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut slot) = slot(&dir);
    write(&mut slot, 2, 1).unwrap();
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    for bit in 64..WORDS as u64 * 64 {
        let (at, mask) = (bit / 8, 1 << (bit % 8));
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ mask], at).unwrap();
        assert!(read(&path, taken(2, 1), None).is_err(), "bit {bit}");
        file.write_all_at(&byte, at).unwrap();
    }
    assert!(read(&path, taken(2, 1), None).is_ok());
}

#[test]
fn a_slot_keeps_what_it_holds_when_it_is_opened_and_grows_for_a_larger_image() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut small) = slot(&dir);
    write(&mut small, 2, 1).unwrap();
    drop(small);
    let large = Slot::open(&path, 10 * BYTES as u64).unwrap();
    assert!(large.capacity() >= 10 * BYTES as u64);
    assert_eq!(read(&path, taken(2, 1), None).unwrap(), image(2));
    let mut back = Slot::open(&path, BYTES as u64).unwrap();
    let length = fs::metadata(&path).unwrap().len();
    assert!(length > 10 * BYTES as u64, "a larger gang may need it");
    let too_long = vec![0; 4 * BYTES];
    let error = back.write((Step(3), Generation(1)), 3, &[&&*too_long]);
    assert!(error.unwrap_err().to_string().contains("does not fit"));
    assert_eq!(read(&path, taken(2, 1), None).unwrap(), image(2));
}

#[test]
fn a_plain_file_is_an_image_too_and_a_short_one_is_torn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.safetensors");
    fs::write(&path, image(7)).unwrap();
    let digest = Some(xxh3_64(&image(7)));
    assert_eq!(read(&path, taken(7, 1), digest).unwrap(), image(7));
    fs::write(&path, &image(7)[1..]).unwrap();
    let error = read(&path, taken(7, 1), digest).unwrap_err();
    assert!(
        error.contains(&format!("({} bytes instead of {BYTES})", BYTES - 1)),
        "{error}"
    );
    // A slot of an earlier build becomes one of this.
    fs::write(&path, image(8)).unwrap();
    let mut slot = Slot::open(&path, BYTES as u64).unwrap();
    assert_eq!(read(&path, taken(8, 0), None).unwrap(), image(8));
    write(&mut slot, 9, 1).unwrap();
    assert_eq!(read(&path, taken(9, 1), None).unwrap(), image(9));
}

#[test]
fn readers_beside_a_busy_writer_see_whole_snapshots_only() {
    let dir = tempfile::tempdir().unwrap();
    let (path, mut slot) = slot(&dir);
    write(&mut slot, 1, 1).unwrap();
    let mut whole = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for step in 2..3000 {
                write(&mut slot, step, 1).unwrap();
            }
        });
        while !writer.is_finished() {
            for step in 1..3000 {
                if let Ok(bytes) = read(&path, taken(step, 1), None) {
                    assert!(bytes == image(step), "step {step}");
                    whole += 1;
                }
            }
        }
        assert!(read(&path, taken(2999, 1), None).is_ok());
    });
    println!("{whole} whole snapshots were read meanwhile");
}
