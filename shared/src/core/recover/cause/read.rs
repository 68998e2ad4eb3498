//! How a fingerprint is read: it names rows of a table, and formats whose names are texts write it as one.
use super::Fingerprint;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Number)
    }
}

/// A number, or one in words.
struct Number;

impl Visitor<'_> for Number {
    type Value = Fingerprint;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a fingerprint: a number of 64 bits")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Fingerprint, E> {
        Ok(Fingerprint(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Fingerprint, E> {
        text.parse().map(Fingerprint).map_err(E::custom)
    }
}
