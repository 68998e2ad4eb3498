//! What roles and other nodes' daemons say over their links: whatever is read is written and read as the same again, and
//! stands for an input of the controller's or for none.
#![no_main]
#![allow(missing_docs)]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use robust_proto::{manifest, v1};
use robust_shared::hardware::Finding;
use robust_shared::ids::Incarnation;

// Linking all of `robustd` for it takes longer than the target runs.
#[path = "../../../daemon/src/driver/translate.rs"]
mod translate;

fuzz_target!(|bytes: &[u8]| {
    let Some((how, rest)) = bytes.split_first() else {
        return;
    };
    match how % 4 {
        0 | 1 => {
            let Some(said) = again::<v1::RoleMessage>(rest) else {
                return;
            };
            if let Some(v1::role_message::Body::Hello(hello)) = &said.body {
                drop(translate::hello(hello));
            }
            if let Some(body) = said.body {
                let _ = translate::input(Incarnation(7), &body);
            }
        }
        2 => {
            let said = again::<v1::NodeMessage>(rest).and_then(|said| said.body);
            if let Some(v1::node_message::Body::Samples(samples)) = said {
                for report in &samples.devices {
                    let _ = serde_json::from_str::<Finding>(&report.finding);
                }
            }
        }
        _ => {
            if let Some(told) = again::<v1::Manifest>(rest)
                && let Ok(manifest) = manifest::from_proto(&told)
            {
                let written = manifest::to_proto(&manifest);
                assert_eq!(manifest::from_proto(&written).ok(), Some(manifest));
            }
        }
    }
});

/// The message, which is the same when it is written and read again.
fn again<M: Message + Default + PartialEq>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    let written = message.encode_to_vec();
    let read = M::decode(&written[..]).expect("what was written can be read");
    // What is no number is not even itself.
    assert!(read == message || read.encode_to_vec() == written);
    Some(message)
}
