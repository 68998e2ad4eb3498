//! A job file that begins from a Hugging Face folder.
use super::{failed, path_text};
use crate::error::CliError;
use crate::format;
use crate::output::{put, put_json};
use robust_shared::job::Job;
use serde_json::json;
use std::path::Path;
use toml::{Table, Value};

pub(super) fn run(from: &Path, base: &Path, out: &Path, json: bool) -> Result<(), CliError> {
    let found = robust_ckpt::look_at(from).map_err(failed)?;
    let unreadable =
        |e: std::io::Error| CliError::Usage(format!("{} cannot be read: {e}", base.display()));
    let text = std::fs::read_to_string(base).map_err(unreadable)?;
    let mut job = Job::parse(&text, base).map_err(|e| CliError::Usage(e.to_string()))?;
    // Paths are relative to the file they stand in: in another folder they must be absolute.
    let absolute = base.canonicalize().map_err(unreadable)?;
    job.resolve(absolute.parent().unwrap_or(Path::new("/")));
    if out.exists() {
        let text = format!("{} exists; name a file that does not", out.display());
        return Err(CliError::Usage(text));
    }
    let mut table: Table = text
        .parse()
        .map_err(|e: toml::de::Error| CliError::Usage(e.to_string()))?;
    let tokenizer = found.tokenizer.clone().unwrap_or(job.data.tokenizer);
    set(&mut table, "data", "prompts", &job.data.prompts);
    set(&mut table, "data", "tokenizer", &tokenizer);
    table.insert("model".to_owned(), Value::Table(Table::new()));
    set(&mut table, "model", "path", &found.folder);
    let text = toml::to_string_pretty(&table)
        .map_err(|e| CliError::Failed(format!("the job cannot be written as TOML: {e}")))?;
    Job::parse(&text, out).map_err(|e| CliError::Usage(e.to_string()))?;
    std::fs::write(out, text)
        .map_err(|e| CliError::Failed(format!("{} cannot be written: {e}", out.display())))?;
    if json {
        return put_json(&json!({
            "job": path_text(out), "model": path_text(&found.folder), "tensors": found.tensors,
            "bytes": found.bytes, "tokenizer": path_text(&tokenizer),
        }));
    }
    put(&format!(
        "{} tensors, {}; the job file is written, start it with:  robustd --job {}\n",
        found.tensors,
        format::bytes(found.bytes),
        out.display()
    ))
}

fn set(table: &mut Table, section: &str, key: &str, path: &Path) {
    let section = table
        .entry(section)
        .or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = section {
        section.insert(key.to_owned(), Value::String(path_text(path)));
    }
}
