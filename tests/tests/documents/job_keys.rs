//! The page of the job file's keys, written from the types that read it: their doc comments, their fields, and the
//! defaults that they take on.
//!
//! ```text
//!  shared/src/job/**.rs ── syn ──► structs, enums ─┐
//!  Job::parse(the least that a job may say) ───────┴──► docs/reference/job-file-keys.md
//! ```
use super::reference::is_page;
use super::root;
use robust_shared::job::Job;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A job of everything that a file may have or not, so that all defaults are seen.
const EVERYTHING: &str = r#"
[data]
prompts = "p"
tokenizer = "t"
[trainer.command]
argv = ["x"]
[rollout.command]
kind = "vllm"
argv = ["x", "{port}"]
[agent.command]
argv = ["x"]
[service.NAME]
argv = ["x"]
[service.NAME.health]
path = "/health"
"#;

/// The types by their names.
#[derive(Default)]
struct Types {
    structs: BTreeMap<String, syn::ItemStruct>,
    enums: BTreeMap<String, syn::ItemEnum>,
}

impl Types {
    fn read(&mut self, file: &Path) {
        let text = std::fs::read_to_string(file).unwrap();
        for item in syn::parse_file(&text).unwrap().items {
            match item {
                syn::Item::Struct(item) => {
                    self.structs.insert(item.ident.to_string(), item);
                }
                syn::Item::Enum(item) => {
                    self.enums.insert(item.ident.to_string(), item);
                }
                _ => {}
            }
        }
    }

    fn of_the_job() -> Self {
        let shared = root().join("shared/src");
        let mut types = Self::default();
        types.read(&shared.join("job/mod.rs"));
        types.read(&shared.join("core/roster/nodes/spec.rs"));
        let mut sections: Vec<PathBuf> = std::fs::read_dir(shared.join("job/sections"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        sections.sort();
        sections.iter().for_each(|file| types.read(file));
        types
    }
}

/// The doc comment of an item as one paragraph.
fn doc(attributes: &[syn::Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let value = &attribute.meta.require_name_value().ok()?.value;
        let syn::Expr::Lit(syn::ExprLit { lit, .. }) = value else {
            return None;
        };
        let syn::Lit::Str(text) = lit else {
            return None;
        };
        let is_doc = attribute.path().is_ident("doc");
        is_doc.then(|| text.value().trim().to_owned())
    });
    lines.collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// What an item's `#[serde(..)]` says of a word: nothing, that it is there, or its value.
fn serde(attributes: &[syn::Attribute], word: &str) -> Option<String> {
    let mut found = None;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("serde")) {
        attribute
            .parse_nested_meta(|meta| {
                let is_it = meta.path.is_ident(word);
                let value = match meta.input.peek(syn::Token![=]) {
                    true => meta.value()?.parse::<syn::LitStr>()?.value(),
                    false => String::new(),
                };
                if is_it {
                    found = Some(value);
                }
                Ok(())
            })
            .unwrap();
    }
    found
}

/// A type's last name, and those of what it is of: `Option<Vec<String>>` is `Option`, `Vec`, `String`.
fn names(ty: &syn::Type) -> Vec<String> {
    match ty {
        syn::Type::Path(path) => {
            let last = path.path.segments.last().unwrap();
            let mut all = vec![last.ident.to_string()];
            if let syn::PathArguments::AngleBracketed(of) = &last.arguments {
                for argument in &of.args {
                    if let syn::GenericArgument::Type(ty) = argument {
                        all.extend(names(ty));
                    }
                }
            }
            all
        }
        syn::Type::Array(array) => [vec!["Vec".to_owned()], names(&array.elem)].concat(),
        _ => panic!("a type of the job file that this test does not know"),
    }
}

/// The words that a value of an enum may be, each with what it means.
fn words(item: &syn::ItemEnum) -> Vec<(String, String)> {
    let case = serde(&item.attrs, "rename_all").unwrap_or_default();
    let of = |variant: &syn::Variant| {
        let name = variant.ident.to_string();
        (cased(&name, &case), doc(&variant.attrs))
    };
    item.variants.iter().map(of).collect()
}

/// A variant's name as serde writes it.
fn cased(name: &str, case: &str) -> String {
    let between = match case {
        "kebab-case" => "-",
        "snake_case" => "_",
        _ => "",
    };
    let mut word = String::new();
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_uppercase() {
            word += between;
        }
        word.extend(letter.to_lowercase());
    }
    match case {
        "UPPERCASE" => word.to_uppercase(),
        _ => word,
    }
}

/// One page that is written section by section.
struct Page {
    types: Types,
    defaults: toml::Value,
    text: String,
}

impl Page {
    /// What a value is, for the reader of the table.
    fn kind(&self, names: &[String]) -> String {
        match names[0].as_str() {
            "Option" => self.kind(&names[1..]),
            "Vec" => format!("list: {}", self.kind(&names[1..])),
            "BTreeMap" => format!("table: {}", self.kind(&names[2..])),
            "String" | "PathBuf" => "text".to_owned(),
            "bool" => "true or false".to_owned(),
            "f64" => "number".to_owned(),
            "u16" | "u32" | "u64" => "whole number".to_owned(),
            "MemorySize" => "size, as `\"64GiB\"`".to_owned(),
            other => match self.types.enums.get(other) {
                Some(item) => {
                    let words = words(item).into_iter();
                    let words: Vec<String> =
                        words.map(|(word, _)| format!("`\"{word}\"`")).collect();
                    words.join(" \\| ")
                }
                None => panic!("a key of type {other}"),
            },
        }
    }

    fn default_of(&self, path: &[String]) -> Option<&toml::Value> {
        path.iter()
            .try_fold(&self.defaults, |at, key| match at.as_array() {
                Some(list) => list.first()?.get(key),
                None => at.get(key),
            })
    }

    /// The section of a struct, then those of the structs in it.
    fn section(&mut self, heading: &str, path: &[String], item: &syn::ItemStruct, about: &str) {
        // `Detect` reads itself, and all its keys have defaults.
        let has_defaults = serde(&item.attrs, "default").is_some() || item.ident == "Detect";
        let mut deeper = Vec::new();
        let mut rows = String::new();
        for field in &item.fields {
            let key = serde(&field.attrs, "rename")
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| field.ident.as_ref().unwrap().to_string());
            let names = names(&field.ty);
            let inner = names.last().unwrap();
            if self.types.structs.contains_key(inner) {
                deeper.push((key, inner.clone(), doc(&field.attrs)));
            } else if inner != "DetectValue" {
                let is_optional = has_defaults
                    || names[0] == "Option"
                    || serde(&field.attrs, "default").is_some();
                let path = [path, std::slice::from_ref(&key)].concat();
                rows += &self.row(&path, &names, is_optional, &doc(&field.attrs));
            }
        }
        if !rows.is_empty() {
            let _ = writeln!(self.text, "\n## `{heading}`\n\n{about}\n");
            self.text += "| key | value | default | |\n| --- | --- | --- | --- |\n";
            self.text += &rows;
        }
        self.sections_below(heading, path, deeper);
    }

    fn sections_below(
        &mut self,
        heading: &str,
        path: &[String],
        deeper: Vec<(String, String, String)>,
    ) {
        let mut last = String::new();
        for (key, name, about) in deeper {
            let item = self.types.structs[&name].clone();
            let path = [path, std::slice::from_ref(&key)].concat();
            if name == "KindBudget" {
                // One table for all kinds, each with its meaning.
                if last != name {
                    self.section("[restart.KIND]", &path, &item, &doc(&item.attrs));
                    self.text += "\n| kind | of faults |\n| --- | --- |\n";
                }
                let _ = writeln!(self.text, "| `{key}` | {about} |");
            } else {
                let (heading, path) = self.named(heading, &path, &key);
                self.section(&heading, &path, &item, &about);
            }
            last = name;
        }
    }

    /// A section's heading, and where its defaults are.
    fn named(&self, above: &str, path: &[String], key: &str) -> (String, Vec<String>) {
        match (above, key) {
            (_, "node") => ("[[node]]".to_owned(), path.to_vec()),
            (_, "service") => {
                let path = [path, &["NAME".to_owned()]].concat();
                ("[service.NAME]".to_owned(), path)
            }
            ("", key) => (format!("[{key}]"), path.to_vec()),
            ("[[node]]", key) => (format!("[node.{key}]"), path.to_vec()),
            (above, key) => (
                format!("{}.{key}]", above.trim_end_matches(']')),
                path.to_vec(),
            ),
        }
    }

    fn row(&self, path: &[String], names: &[String], is_optional: bool, about: &str) -> String {
        let default = match self.default_of(path) {
            _ if !is_optional => "to be given".to_owned(),
            Some(value) => format!("`{value}`"),
            None if names[0] == "bool" => "`false`".to_owned(),
            None => "none".to_owned(),
        };
        let meanings = names
            .last()
            .and_then(|name| self.types.enums.get(name))
            .map(words)
            .unwrap_or_default();
        let meanings: String = meanings
            .iter()
            .map(|(word, meaning)| format!("<br>`{word}`: {meaning}"))
            .collect();
        let key = path.last().unwrap();
        let kind = self.kind(names);
        format!("| `{key}` | {kind} | {default} | {about}{meanings} |\n")
    }
}

#[test]
fn the_page_of_the_job_files_keys_has_every_key_with_its_default_and_meaning() {
    let job = Job::parse(EVERYTHING, Path::new("job.toml")).unwrap();
    let types = Types::of_the_job();
    let whole = types.structs["Job"].clone();
    let mut page = Page {
        types,
        defaults: toml::Value::try_from(job).unwrap(),
        text: "# Every key of the job file\n\nWritten from the types that read it; what the sections are for is in [The job file](job-file.md). \
               *None*: the key has no default, and its description says what is done without it. Rules have tables below `[detect]` besides, \
               `[detect.NAME]`: [every rule](rules.md).\n"
            .to_owned(),
    };
    page.section("", &[], &whole, "");
    let sections = page.text.matches("\n## ").count();
    assert!(sections > 30, "{sections}\n{}", page.text);
    is_page("job-file-keys.md", &page.text);
}
