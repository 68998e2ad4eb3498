//! Amounts of memory as job files write them: a whole number and its unit, in quotes.
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The units, with the power of two that each is.
const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// An amount of memory. A unit is always written, so that nobody takes bytes for megabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemorySize(u64);

/// A text that is no amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no size; write a whole number and its unit, such as \"512MiB\" or \"64GiB\"")]
pub struct NoSize(String);

impl MemorySize {
    /// So many bytes.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// In bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MemorySize {
    /// In the largest unit of which it is a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |power: u32| self.0 != 0 && self.0.trailing_zeros() >= power;
        match UNITS.into_iter().find(|(_, power)| fits(*power)) {
            Some((unit, power)) => write!(f, "{}{unit}", self.0 >> power),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl FromStr for MemorySize {
    type Err = NoSize;

    fn from_str(text: &str) -> Result<Self, NoSize> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = text[digits.len()..].trim();
        let power = match unit {
            "B" => Some(0),
            unit => UNITS.iter().find(|(of, _)| *of == unit).map(|(_, p)| *p),
        };
        let bytes = power
            .zip(digits.parse::<u64>().ok())
            .and_then(|(power, number)| number.checked_mul(1 << power));
        bytes.map(Self).ok_or_else(|| NoSize(text.to_owned()))
    }
}

impl Serialize for MemorySize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MemorySize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = MemorySize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size with its unit in quotes, such as \"64GiB\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<MemorySize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_size_is_written_as_it_is_read() {
        for (text, bytes) in [
            ("64GiB", 64 << 30),
            ("512MiB", 512 << 20),
            ("3KiB", 3072),
            ("1TiB", 1 << 40),
            ("1000B", 1000),
        ] {
            let size: MemorySize = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, text));
        }
        assert_eq!("64 GiB".parse(), Ok(MemorySize::of_bytes(64 << 30)));
        assert_eq!(MemorySize::of_bytes(2048 << 20).to_string(), "2GiB");
        assert_eq!(MemorySize::of_bytes(0).to_string(), "0B");
    }

    #[test]
    fn what_has_no_unit_or_more_than_there_can_be_is_no_size() {
        for text in [
            "",
            "64",
            "GiB",
            "64GB",
            "64g",
            "-1GiB",
            "1.5GiB",
            "99999999999999TiB",
            "6ä",
        ] {
            let refused = text.parse::<MemorySize>().unwrap_err().to_string();
            assert!(refused.contains("such as \"512MiB\""), "{refused}");
        }
    }
}
