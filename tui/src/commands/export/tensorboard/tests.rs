#![allow(clippy::unwrap_used)]
use super::super::tests::{run, step_again};
use super::*;
use std::collections::BTreeMap;

/// What an event says, read by the numbers of its fields, without the messages that wrote it.
#[derive(Debug, Default)]
struct Read {
    step: u64,
    version: Option<String>,
    starts: bool,
    scalars: Vec<(String, f32)>,
    texts: Vec<(String, String)>,
}

/// The fields of a message: their numbers, with what they hold as bytes; numbers of variable length as eight.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let size = match key & 7 {
            0 => {
                let value = varint(&mut bytes);
                fields.push((key >> 3, value.to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => unreachable!("no message here has a field of type {other}"),
        };
        let (value, rest) = bytes.split_at(size);
        fields.push((key >> 3, value.to_vec()));
        bytes = rest;
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0_u32);
    loop {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return value;
        }
    }
}

fn field(message: &[u8], number: u64) -> Option<Vec<u8>> {
    let mut all = fields(message).into_iter();
    all.find(|(n, _)| *n == number).map(|(_, value)| value)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// CRC-32C a bit at a time.
fn crc(bytes: &[u8]) -> u32 {
    let bit = |sum: u32| (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
    let byte = |sum: u32, byte: &u8| (0..8).fold(sum ^ u32::from(*byte), |sum, _| bit(sum));
    !bytes.iter().fold(u32::MAX, byte)
}

fn take<'a>(bytes: &mut &'a [u8], size: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(size);
    *bytes = rest;
    taken
}

fn is_sum(sum: &[u8], of: &[u8]) {
    let kept = u32::from_le_bytes(sum.try_into().unwrap()).wrapping_sub(0xa282_ead8);
    assert_eq!(kept.rotate_left(15), crc(of));
}

/// Checks a record's sums and gives its message.
fn record<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let length = take(bytes, 8);
    is_sum(take(bytes, 4), length);
    let message = take(
        bytes,
        u64::from_le_bytes(length.try_into().unwrap()) as usize,
    );
    is_sum(take(bytes, 4), message);
    message
}

fn event(message: &[u8]) -> Read {
    let mut read = Read {
        step: field(message, 2).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap())),
        version: field(message, 3).map(text),
        starts: field(message, 7).is_some_and(|log| field(&log, 1).unwrap()[0] == 1),
        ..Default::default()
    };
    for (_, value) in fields(&field(message, 5).unwrap_or_default()) {
        let tag = text(field(&value, 1).unwrap());
        if let Some(scalar) = field(&value, 2) {
            let scalar = f32::from_le_bytes(scalar.try_into().unwrap());
            read.scalars.push((tag.clone(), scalar));
        }
        if let Some(tensor) = field(&value, 8) {
            let plugin = field(&field(&value, 9).unwrap(), 1).unwrap();
            assert_eq!(text(field(&plugin, 1).unwrap()), "text");
            assert_eq!(field(&tensor, 1).unwrap()[0], 7, "DT_STRING");
            read.texts.push((tag, text(field(&tensor, 8).unwrap())));
        }
    }
    read
}

/// Every event of a folder, file by file in the order of their names.
fn read(folder: &Path) -> Vec<Read> {
    let mut all = Vec::new();
    for name in ours(folder).unwrap() {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            all.push(event(record(&mut rest)));
        }
    }
    all
}

/// What TensorBoard shows of a series: the start of a session drops the points after its step.
fn shown(folder: &Path, tag: &str) -> BTreeMap<u64, Vec<f32>> {
    let mut points: BTreeMap<u64, Vec<f32>> = BTreeMap::new();
    for event in read(folder) {
        if event.starts {
            points.retain(|step, _| *step <= event.step);
        }
        for (_, value) in event.scalars.iter().filter(|(name, _)| name == tag) {
            points.entry(event.step).or_default().push(*value);
        }
    }
    points
}

#[test]
fn a_record_is_what_tensorflow_writes() {
    // The check value of CRC-32C, rotated and shifted.
    assert_eq!(record::masked(b"123456789"), 0xc78a_b0e5);
    let mut out = Vec::new();
    record::put(&mut out, &Event::version(1.5));
    let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c"
    );
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::new(dir.path()).whole(&run(3)).unwrap();
    assert_eq!(folder, dir.path().join("arith-20231114T221320Z"));
    let events = read(&folder);
    assert_eq!(events[0].version.as_deref(), Some("brain.Event:2"));
    assert!(events[1].starts && events[1].step == 0, "{:?}", events[1]);
    let texts: Vec<_> = events.iter().flat_map(|event| &event.texts).collect();
    assert!(texts[0].1.contains("| job.name | \"arith\" |"), "{texts:?}");
    assert_eq!(texts[1].0, "incidents/what");
    assert!(texts[1].1.contains("killed by SIGKILL"), "{texts:?}");
    let reward = shown(&folder, "train/reward");
    assert_eq!(
        reward,
        BTreeMap::from([(1, vec![0.5]), (2, vec![1.0]), (3, vec![1.5])])
    );
    assert_eq!(shown(&folder, "train/tokens_per_s")[&2], [50.0]);
    assert_eq!(shown(&folder, "run/ettr_sliding")[&2], [0.75]);
    assert_eq!(
        shown(&folder, "incidents/total_s"),
        BTreeMap::from([(4, vec![1.5])])
    );
    assert_eq!(
        shown(&folder, "time/both"),
        BTreeMap::from([(3, vec![0.75])])
    );
}

#[test]
fn no_point_shows_twice_when_the_export_is_made_again_or_steps_were_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut board = Folder::new(dir.path());
    let folder = board.whole(&run(5)).unwrap();
    // Another process, later: the same file names do not come again.
    Folder::new(dir.path()).whole(&run(5)).unwrap();
    assert_eq!(ours(&folder).unwrap().len(), 2);
    let reward = shown(&folder, "train/reward");
    assert!(reward.values().all(|at| at.len() == 1), "{reward:?}");
    assert_eq!(reward.len(), 5);
    // Back to step 2, of which one is done again by now.
    board.whole(&step_again(3)).unwrap();
    let reward = shown(&folder, "train/reward");
    assert_eq!(
        reward,
        BTreeMap::from([(1, vec![0.5]), (2, vec![1.0]), (3, vec![9.0])])
    );
}

#[test]
fn what_comes_later_is_put_behind_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut board = Folder::new(dir.path());
    let folder = board.whole(&run(2)).unwrap();
    let mut later = run(4);
    later.points.drain(..2);
    later.incidents.clear();
    board.more(&later).unwrap();
    let steps: Vec<u64> = shown(&folder, "train/reward").into_keys().collect();
    assert_eq!((steps, ours(&folder).unwrap().len()), (vec![1, 2, 3, 4], 1));
    std::fs::remove_dir_all(&folder).unwrap();
    board.more(&later).unwrap_err();
}

#[test]
fn files_that_were_replaced_are_removed_once_nobody_reads_them_and_those_of_others_never() {
    let name = |second: u64| format!("{PREFIX}{second:010}.host.7.0{SUFFIX}");
    let former: Vec<_> = [100, 1_000, 2_000].map(name).into();
    assert_eq!(outlived(&former, 1_599), [] as [String; 0]);
    assert_eq!(outlived(&former, 1_600), &former[..1]);
    assert_eq!(
        outlived(&former, 9_999),
        &former[..2],
        "the last one is read still"
    );
    assert!(next_name(&former, 1_500).starts_with("events.out.tfevents.0000002001."));
    let dir = tempfile::tempdir().unwrap();
    let mut board = Folder::new(dir.path());
    let folder = board.whole(&run(1)).unwrap();
    let theirs = folder.join("events.out.tfevents.0000000001.host.1.0");
    std::fs::write(&theirs, "").unwrap();
    for second in [2, 3] {
        std::fs::write(folder.join(name(second)), "").unwrap();
    }
    board.whole(&run(1)).unwrap();
    assert!(theirs.exists());
    assert!(!folder.join(name(2)).exists());
}
