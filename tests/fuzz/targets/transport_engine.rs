//! Two engines of the transport, and a network between them that cuts, breaks, lies and takes its time. Nothing is
//! written outside of what was asked for nor after it was answered, everybody is answered in the end, and what
//! others make an engine remember has bounds.
#![no_main]
#![allow(missing_docs)]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use robust_fuzz::Bytes;
use robust_transport::Trouble;
use robust_transport::fuzzing::{Pair, SIZE};

/// Steps of one run.
const STEPS: usize = 200;

fuzz_target!(|bytes: &[u8]| {
    let (mut bytes, mut pair) = (Bytes::new(bytes), Pair::default());
    for _ in 0..STEPS {
        if bytes.is_over() {
            break;
        }
        step(&mut pair, &mut bytes);
    }
    pair.finish();
});

fn step(pair: &mut Pair, bytes: &mut Bytes<'_>) {
    let what = bytes.byte();
    let (side, what) = (usize::from(what & 1), what >> 1);
    match what % 19 {
        0 => pair.expose(side, false),
        1 => pair.expose(side, true),
        2 | 3 => fetch(pair, side, bytes),
        4 => pair.flow(1),
        5 => pair.flow(4),
        6 => pair.notify(side),
        7 => {
            let (region, start) = (bytes.below(4), place(bytes));
            let end = start.saturating_add(place(bytes)).min(SIZE as u16 + 9);
            pair.ready(side, region, start.into()..end.into());
        }
        8 => pair.unexpose(side, bytes.below(4), bytes.flag()),
        9 => pair.cancel(side, bytes.below(8)),
        10 | 11 => {
            let (pipe, most) = (bytes.below(4), bytes.short());
            pair.deliver(side, pipe, most.into());
            pair.turn(side);
        }
        12 => {
            pair.turn(side);
        }
        13 => {
            let time = Duration::from_millis(u64::from(bytes.byte()) * 10);
            pair.pass(side, time);
        }
        14 => pair.cut(side, bytes.below(4)),
        15 => trouble(pair, side, bytes),
        16 => {
            let (pipe, at) = (bytes.below(4), bytes.byte());
            pair.spoil(side, pipe, at.into(), bytes.byte());
        }
        17 => forge(pair, side, bytes),
        _ => {
            let (pipe, token) = (bytes.below(4), bytes.below(64));
            pair.forge_piece(side, pipe, token, usize::from(bytes.short() % 5000));
        }
    }
}

/// A place in a buffer, in blocks as a rule.
fn place(bytes: &mut Bytes<'_>) -> u16 {
    match bytes.byte() {
        block @ 0..128 => u16::from(block & 15) * 256,
        low => u16::from(low) << 8 | u16::from(bytes.byte()),
    }
}

fn fetch(pair: &mut Pair, side: usize, bytes: &mut Bytes<'_>) {
    let (region, how) = (bytes.below(4), bytes.byte());
    let part = |bytes: &mut Bytes<'_>| (place(bytes), place(bytes), place(bytes) % 2049);
    let parts: Vec<_> = (0..=how & 3).map(|_| part(bytes)).collect();
    pair.fetch(side, region, &parts, how > 250);
}

fn trouble(pair: &mut Pair, side: usize, bytes: &mut Bytes<'_>) {
    let how = bytes.byte();
    let trouble = match how % 3 {
        0 => None,
        1 => Some(Trouble::Stall),
        _ => Some(Trouble::Cut),
    };
    pair.trouble(side, trouble, Duration::from_millis(u64::from(how) * 4));
}

/// A message that none of ours sent, of numbers that were seen on the wire as a rule.
fn forge(pair: &mut Pair, side: usize, bytes: &mut Bytes<'_>) {
    let (pipe, kind, count) = (bytes.below(4), bytes.below(12), bytes.below(9));
    pair.forge((side, pipe), kind as u32, |seen| {
        let mut body = Vec::new();
        for _ in 0..count {
            let number = match bytes.byte() {
                at @ 0..160 => seen.get(usize::from(at) % 64).copied().unwrap_or(0),
                _ => bytes.number(),
            };
            body.extend(number.to_le_bytes());
        }
        body.extend(bytes.take(count % 3));
        body
    });
}
