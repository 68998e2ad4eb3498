//! Messages, frames, keys and addresses as they come from other transports: whatever is read is written as the
//! same bytes again, and frames are the same however the network cuts them.
#![no_main]
#![allow(missing_docs)]

use libfuzzer_sys::fuzz_target;
use robust_transport::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    let Some((how, rest)) = bytes.split_first() else {
        return;
    };
    match how {
        0..128 => fuzzing::messages(rest),
        cut => fuzzing::frames(rest, usize::from(cut - 127)),
    }
});
