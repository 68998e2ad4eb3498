//! `[detect]`: how the detection rules are set. Which rules and settings there are, the table of
//! rules says ([`crate::core::RULES`]); this keeps what the file has, for that table to judge.
use super::super::units::millis;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// `[detect]` and its tables, one a rule: `[detect.trainer_idle] window_s = 60`, within it
/// `phases = { update = 120 }` for single phases and a table for a single role.
#[derive(Clone, Debug, PartialEq)]
pub struct Detect {
    /// Milliseconds between activity samples.
    pub sample_interval_ms: u64,
    /// Milliseconds that stacks of a hung process may take before it is killed without them.
    pub evidence_ms: u64,
    /// Rules that are switched off, by the names of their tables.
    pub off: Vec<String>,
    /// The rules' tables by name.
    pub rules: BTreeMap<String, DetectValue>,
}

/// A value below `[detect]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum DetectValue {
    /// A setting.
    Number(f64),
    /// A rule's, a role's or the phases' table.
    Table(BTreeMap<String, DetectValue>),
}

impl DetectValue {
    /// Whether it is a table with this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        matches!(self, Self::Table(table) if table.contains_key(key))
    }
}

impl Default for Detect {
    fn default() -> Self {
        Self {
            sample_interval_ms: 250,
            evidence_ms: 2000,
            off: Vec::new(),
            rules: BTreeMap::new(),
        }
    }
}

impl Detect {
    /// `sample_interval_ms` as a duration.
    pub fn sample_interval(&self) -> Duration {
        millis(self.sample_interval_ms)
    }

    /// `evidence_ms` as a duration.
    pub fn evidence(&self) -> Duration {
        millis(self.evidence_ms)
    }
}

impl Serialize for Detect {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("sample_interval_ms", &self.sample_interval_ms)?;
        map.serialize_entry("evidence_ms", &self.evidence_ms)?;
        map.serialize_entry("off", &self.off)?;
        for (name, table) in &self.rules {
            map.serialize_entry(name, table)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Detect {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(DetectVisitor)
    }
}

struct DetectVisitor;

impl<'de> Visitor<'de> for DetectVisitor {
    type Value = Detect;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a section of keys")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Detect, A::Error> {
        let mut detect = Detect::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "sample_interval_ms" => detect.sample_interval_ms = map.next_value()?,
                "evidence_ms" => detect.evidence_ms = map.next_value()?,
                "off" => detect.off = map.next_value()?,
                _ => {
                    let value = map.next_value()?;
                    detect.rules.insert(name, value);
                }
            }
        }
        Ok(detect)
    }
}

impl<'de> Deserialize<'de> for DetectValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor)
    }
}

/// Written out so that the reader's error names what is there; an untagged one only says that
/// nothing fits.
struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = DetectValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a table")
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<DetectValue, E> {
        Ok(DetectValue::Number(v as f64))
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<DetectValue, E> {
        Ok(DetectValue::Number(v as f64))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<DetectValue, E> {
        Ok(DetectValue::Number(v))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DetectValue, A::Error> {
        let mut table = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            table.insert(name, value);
        }
        Ok(DetectValue::Table(table))
    }
}
