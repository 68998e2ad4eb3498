//! What a disk, or another build, may do to values: fields that are gone, have another's value, or another number.
//! Numbers stay such as a job may have: a database that finds flipped bits itself gives no others back, and those that
//! count beyond what a u64 holds say nothing but that.

use ciborium::Value;

use crate::Bytes;

/// Changes one thing in a value; how deep, the bytes say.
pub fn damage(value: &mut Value, bytes: &mut Bytes<'_>) {
    match value {
        Value::Map(fields) if !fields.is_empty() => {
            let at = bytes.below(fields.len());
            match bytes.byte() {
                0..=219 => damage(&mut fields[at].1, bytes),
                220..=229 => drop(fields.remove(at)),
                230..=239 => {
                    let other = fields[bytes.below(fields.len())].1.clone();
                    fields[at].1 = other;
                }
                _ => fields[at].1 = scalar(bytes),
            }
        }
        Value::Array(all) if !all.is_empty() => {
            let at = bytes.below(all.len());
            match bytes.byte() {
                0..=199 => damage(&mut all[at], bytes),
                200..=214 => drop(all.remove(at)),
                215..=229 => all.push(all[at].clone()),
                230..=239 => {
                    let other = bytes.below(all.len());
                    all.swap(at, other);
                }
                _ => all[at] = scalar(bytes),
            }
        }
        Value::Integer(_) => *value = Value::from(bytes.short()),
        Value::Bool(flag) => *flag = !*flag,
        Value::Text(text) => match bytes.below(3) {
            0 => text.clear(),
            1 => text.push('x'),
            _ => *value = scalar(bytes),
        },
        _ => *value = scalar(bytes),
    }
}

fn scalar(bytes: &mut Bytes<'_>) -> Value {
    match bytes.below(8) {
        0 => Value::Null,
        1 => Value::Bool(bytes.flag()),
        2 => Value::Float(f64::from_bits(bytes.long())),
        3 => Value::Text(String::from_utf8_lossy(bytes.take(4)).into_owned()),
        4 => Value::Array(Vec::new()),
        5 => Value::Map(Vec::new()),
        6 => Value::from(-i64::from(bytes.byte())),
        _ => Value::from(bytes.short()),
    }
}
