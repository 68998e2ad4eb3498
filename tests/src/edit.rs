//! Job files made from a fixture by changing keys.
use crate::programs::fixture;
use std::path::{Path, PathBuf};

/// A job file's text with some keys changed.
#[derive(Clone)]
pub struct JobFile {
    table: toml::Table,
}

impl JobFile {
    /// The small job of `fixtures/jobs/test.toml`, its paths made absolute.
    pub fn small() -> Self {
        Self::of_fixture("jobs/test.toml")
    }

    /// A job below `fixtures`, its paths made absolute.
    pub fn of_fixture(name: &str) -> Self {
        let path = fixture(name);
        let text = std::fs::read_to_string(&path).expect("the fixture is there");
        let mut job = Self {
            table: text.parse().expect("it is TOML"),
        };
        for key in ["prompts", "tokenizer"] {
            if !job.table.contains_key("data") {
                break;
            }
            let relative = job.table["data"][key].as_str().expect("a path").to_owned();
            let absolute = path.parent().expect("a folder").join(relative);
            job = job.set("data", key, absolute.to_string_lossy().into_owned());
        }
        job
    }

    /// A job that this text describes.
    pub fn of_text(text: &str) -> Self {
        Self {
            table: text.parse().expect("it is TOML"),
        }
    }

    /// A job file with absolute paths.
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("the job file is there");
        Self {
            table: text.parse().expect("it is TOML"),
        }
    }

    /// Sets `[section] key = value`; sections may be dotted.
    pub fn set(mut self, section: &str, key: &str, value: impl Into<toml::Value>) -> Self {
        let mut table = &mut self.table;
        for part in section.split('.') {
            let entry = table
                .entry(part.to_owned())
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            table = entry.as_table_mut().expect("a section");
        }
        table.insert(key.to_owned(), value.into());
        self
    }

    /// Leaves a section away; it may be dotted.
    pub fn without(mut self, section: &str) -> Self {
        let (parents, last) = section.rsplit_once('.').unwrap_or(("", section));
        let mut table = &mut self.table;
        for part in parents.split('.').filter(|part| !part.is_empty()) {
            let entry = table.get_mut(part).and_then(toml::Value::as_table_mut);
            table = entry.expect("a section");
        }
        table.remove(last);
        self
    }

    /// The text at `[section] key`.
    pub fn text_of(&self, section: &str, key: &str) -> String {
        let text = self.table[section][key].as_str();
        text.expect("a text").to_owned()
    }

    /// The job file's text.
    pub fn text(&self) -> String {
        self.table.to_string()
    }

    /// Gives it these nodes, each with its slots by pool, the leader's own first.
    pub fn nodes(mut self, nodes: &[(&str, &[(&str, i64)])]) -> Self {
        let node = |(name, pools): &(&str, &[(&str, i64)])| {
            let slots = |(pool, slots): &(&str, i64)| ((*pool).to_owned(), (*slots).into());
            let pools: toml::Table = pools.iter().map(slots).collect();
            let name = ("name".to_owned(), (*name).into());
            toml::Value::Table(
                [name, ("pools".to_owned(), pools.into())]
                    .into_iter()
                    .collect(),
            )
        };
        let all = nodes.iter().map(node).collect();
        self.table
            .insert("node".to_owned(), toml::Value::Array(all));
        self
    }

    /// Gives its first node these devices, by pool.
    pub fn devices(mut self, pools: &[(&str, &[i64])]) -> Self {
        let list = |numbers: &[i64]| -> toml::Value { numbers.to_vec().into() };
        let all = pools
            .iter()
            .map(|(pool, of)| ((*pool).to_owned(), list(of)));
        let devices = toml::Value::Table(all.collect());
        let nodes = self
            .table
            .get_mut("node")
            .and_then(toml::Value::as_array_mut);
        let first = nodes.and_then(|nodes| nodes.first_mut()).expect("a node");
        let first = first.as_table_mut().expect("a section");
        first.insert("devices".to_owned(), devices);
        self
    }

    /// Writes it as `DIR/job.toml`.
    pub fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join("job.toml");
        std::fs::write(&path, self.table.to_string()).expect("the job file is written");
        path
    }
}
