//! A job that ran for a while, whose stored state is damaged before a daemon goes on with it: it is refused, or it is
//! gone on with, whatever comes then; nobody panics.
#![no_main]
#![allow(missing_docs)]

use libfuzzer_sys::fuzz_target;
use robust_fuzz::{Bytes, Driver, damage};
use robust_shared::core::{Core, Entries, Entry, EntryKey};

/// Steps of a run before the damage, and after it.
const STEPS: usize = 60;

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes::new(bytes);
    let mut driver = Driver::new(&mut bytes);
    for _ in 0..bytes.below(STEPS) {
        driver.step(&mut bytes);
    }
    driver.store();
    let Some(stored) = damaged(driver.disk(), &mut bytes) else {
        return;
    };
    let Ok(Some(state)) = stored.state() else {
        return;
    };
    let core = Core::restore(driver.config().clone(), state);
    let mut driver = driver.damaged(core, stored);
    for _ in 0..STEPS {
        if bytes.is_over() || driver.over {
            break;
        }
        driver.step(&mut bytes);
    }
});

/// The same entries as they are read from a disk that changed some of them; none: it is refused.
fn damaged(stored: &Entries, bytes: &mut Bytes<'_>) -> Option<Entries> {
    let coded = |(key, entry): (&EntryKey, &Entry)| Some((key.encode(), entry.encode(*key).ok()?));
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = stored.iter().filter_map(coded).collect();
    for _ in 0..=bytes.below(3) {
        let at = bytes.below(all.len());
        let (key, value) = all.get_mut(at)?;
        match bytes.byte() {
            0..=199 => change(value, bytes),
            200..=209 => drop(all.remove(at)),
            210..=219 => {
                let place = bytes.below(key.len());
                key[place] = bytes.byte();
            }
            220..=229 => {
                let other = bytes.below(all.len());
                all[at].1 = all[other].1.clone();
            }
            _ => {
                let place = bytes.below(value.len());
                value[place] = bytes.byte();
            }
        }
    }
    let mut read = Entries::default();
    for (key, value) in all {
        let key = EntryKey::decode(&key)?;
        read.put(key, Entry::decode(key, &value).ok()?);
    }
    Some(read)
}

fn change(value: &mut Vec<u8>, bytes: &mut Bytes<'_>) {
    let Ok(mut read) = ciborium::from_reader(&value[..]) else {
        return;
    };
    damage(&mut read, bytes);
    value.clear();
    let _ = ciborium::into_writer(&read, value);
}
