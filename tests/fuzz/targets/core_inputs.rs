//! The controller with whatever roles, nodes, operators and clients may say to it, at any time and in any order.
//! Its index is what a scan says, nobody waits for nothing, what it stores is read back as it was, and what it
//! promised it does not take back.
#![no_main]
#![allow(missing_docs)]

use libfuzzer_sys::fuzz_target;
use robust_fuzz::{Bytes, Driver};

/// Steps of one run.
const STEPS: usize = 150;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes::new(bytes);
    let mut driver = Driver::new(&mut bytes);
    for _ in 0..STEPS {
        if bytes.is_over() || driver.over {
            break;
        }
        driver.step(&mut bytes);
    }
    driver.check();
});
