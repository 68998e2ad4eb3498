//! A checkpoint as a Hugging Face folder: `config.json`, `model.safetensors`, the tokenizer.
//!
//! ```text
//! rank files' `params`, in order of their range ──► one flat buffer ──► tensors by the manifest's table
//! ```
//! Bytes are streamed: memory does not grow with the model. The folder appears whole, by one rename.
use crate::disk::RealDisk;
use crate::{Checkpoint, CkptError, files, image};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// The architecture's file in a model folder.
const CONFIG: &str = "config.json";
/// The weights' file in a model folder.
const WEIGHTS: &str = "model.safetensors";
/// The tokenizer's file in a model folder.
const TOKENIZER: &str = "tokenizer.json";
/// What makes `AutoTokenizer` read a bare `tokenizer.json`.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// What a shard lacks that is no built-in trainer's.
const NOT_PARAMS: &str = "`params`: it is the state of a program of [trainer.command], which saves a model of its own in \
                          a folder (`save_pretrained`), or of no trainer at all";

/// What was exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Bytes of all weights.
    pub bytes: u64,
    /// Number of tensors.
    pub tensors: usize,
    /// Files of the folder, by name.
    pub files: Vec<String>,
}

/// One rank's part of the weights.
struct Part {
    path: PathBuf,
    /// Bytes of the flat buffer that it has.
    covers: Range<u64>,
    /// Where they begin in the file.
    at: u64,
    /// What the whole file must be.
    bytes: u64,
    xxh3: u64,
}

/// Writes a checkpoint's weights to `to`, which must not exist, with config and tokenizer of the model
/// folder the job began from. Every shard is verified on the way; a wrong one leaves nothing behind.
/// `wrote` hears of every piece, in bytes.
pub fn export(
    checkpoint: &Checkpoint,
    model: &Path,
    tokenizer: &Path,
    to: &Path,
    wrote: &mut dyn FnMut(u64),
) -> Result<Exported, CkptError> {
    if to.exists() {
        return Err(CkptError::bad(to, "it exists; name a folder that does not"));
    }
    let parts = parts(checkpoint)?;
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let partial = to.with_file_name(format!(".{name}.partial-{}", std::process::id()));
    std::fs::create_dir_all(&partial).map_err(CkptError::io("make", &partial))?;
    let written = fill_folder(checkpoint, &parts, (model, tokenizer), &partial, wrote);
    let exported = written.and_then(|exported| {
        std::fs::rename(&partial, to).map_err(CkptError::io("rename", &partial))?;
        let parent = to.parent().filter(|p| !p.as_os_str().is_empty());
        files::sync_dir(&RealDisk, parent.unwrap_or(Path::new(".")))?;
        Ok(exported)
    });
    exported.inspect_err(|_| {
        // The error at hand is the one to tell.
        let _ = std::fs::remove_dir_all(&partial);
    })
}

fn fill_folder(
    checkpoint: &Checkpoint,
    parts: &[Part],
    (model, tokenizer): (&Path, &Path),
    folder: &Path,
    wrote: &mut dyn FnMut(u64),
) -> Result<Exported, CkptError> {
    let mut files = vec![CONFIG.to_owned(), WEIGHTS.to_owned(), TOKENIZER.to_owned()];
    copy(&model.join(CONFIG), &folder.join(CONFIG))?;
    copy(tokenizer, &folder.join(TOKENIZER))?;
    let config = folder.join(TOKENIZER_CONFIG);
    let beside = tokenizer.with_file_name(TOKENIZER_CONFIG);
    match beside.exists() {
        true => copy(&beside, &config)?,
        false => files::replace(
            &RealDisk,
            &config,
            br#"{"tokenizer_class": "PreTrainedTokenizerFast"}"#,
        )?,
    }
    files.push(TOKENIZER_CONFIG.to_owned());
    let bytes = write_weights(checkpoint, parts, &folder.join(WEIGHTS), wrote)?;
    files::sync_dir(&RealDisk, folder)?;
    let tensors = checkpoint.tensors.len();
    Ok(Exported {
        bytes,
        tensors,
        files,
    })
}

fn copy(from: &Path, to: &Path) -> Result<(), CkptError> {
    let bytes = std::fs::read(from).map_err(CkptError::io("read", from))?;
    files::replace(&RealDisk, to, &bytes)
}

/// The ranks' parts in order; together they are the flat buffer.
fn parts(checkpoint: &Checkpoint) -> Result<Vec<Part>, CkptError> {
    let mut parts = Vec::new();
    for shard in &checkpoint.shards {
        let mut part = part(&shard.path)?;
        (part.bytes, part.xxh3) = (shard.bytes, shard.xxh3);
        parts.push(part);
    }
    parts.sort_by_key(|p| p.covers.start);
    let mut end = 0;
    for part in &parts {
        if part.covers.start != end {
            let reason = format!(
                "its range begins at byte {}, expected {end}",
                part.covers.start
            );
            return Err(CkptError::bad(&part.path, reason));
        }
        end = part.covers.end;
    }
    if checkpoint.tensors.is_empty() {
        let reason = "its manifest names no tensors (it is of an earlier build); write a new one";
        return Err(CkptError::bad(&checkpoint.dir, reason));
    }
    let total: u64 = checkpoint.tensors.iter().map(|t| t.bytes).sum();
    if total != end {
        let reason = format!("its shards have {end} bytes of weights, its tensors {total}");
        return Err(CkptError::bad(&checkpoint.dir, reason));
    }
    Ok(parts)
}

fn part(path: &Path) -> Result<Part, CkptError> {
    let lacks = |what: &str| CkptError::bad(path, format!("it has no {what}"));
    let header = image::header(path)?;
    let params = header
        .tensors
        .info("params")
        .ok_or_else(|| lacks(NOT_PARAMS))?;
    let metadata = header.tensors.metadata().as_ref();
    let first = metadata.and_then(|m| m.get("first")?.parse::<u64>().ok());
    let first = first.ok_or_else(|| lacks("`first` in its metadata"))? * 4;
    let (from, to) = params.data_offsets;
    Ok(Part {
        path: path.to_owned(),
        covers: first..first + (to - from) as u64,
        at: header.data + from as u64,
        bytes: 0,
        xxh3: 0,
    })
}

fn write_weights(
    checkpoint: &Checkpoint,
    parts: &[Part],
    to: &Path,
    wrote: &mut dyn FnMut(u64),
) -> Result<u64, CkptError> {
    let file = File::create(to).map_err(CkptError::io("make", to))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let header = header(checkpoint);
    let writing = || CkptError::io("write", to);
    out.write_all(&(header.len() as u64).to_le_bytes())
        .and_then(|()| out.write_all(&header))
        .map_err(writing())?;
    let mut total = 0;
    for part in parts {
        total += copy_part(part, &mut out, to, wrote)?;
    }
    let file = out.into_inner().map_err(|e| writing()(e.into_error()))?;
    file.sync_all().map_err(writing())?;
    Ok(total)
}

/// Copies a part's weights while the whole file's digest is taken.
fn copy_part(
    part: &Part,
    out: &mut impl Write,
    to: &Path,
    wrote: &mut dyn FnMut(u64),
) -> Result<u64, CkptError> {
    let reading = || CkptError::io("read", &part.path);
    let mut file = File::open(&part.path).map_err(reading())?;
    let wanted = part.at..part.at + (part.covers.end - part.covers.start);
    let (mut hash, mut at, mut bytes) = (Xxh3::new(), 0_u64, vec![0; 1 << 20]);
    loop {
        let filled = files::fill(&mut file, &mut bytes).map_err(reading())?;
        if filled == 0 {
            break;
        }
        hash.update(&bytes[..filled]);
        let piece = at..at + filled as u64;
        let here = wanted.start.max(piece.start)..wanted.end.min(piece.end);
        if here.start < here.end {
            let slice = (here.start - at) as usize..(here.end - at) as usize;
            out.write_all(&bytes[slice])
                .map_err(CkptError::io("write", to))?;
            wrote(here.end - here.start);
        }
        at = piece.end;
    }
    if (at, hash.digest()) != (part.bytes, part.xxh3) {
        return Err(CkptError::bad(&part.path, "it does not match its digest"));
    }
    Ok(wanted.end - wanted.start)
}

/// The header of `model.safetensors`, padded with spaces to whole words as the format asks.
fn header(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut root = serde_json::Map::new();
    root.insert(
        "__metadata__".to_owned(),
        serde_json::json!({"format": "pt"}),
    );
    for tensor in &checkpoint.tensors {
        let offsets = [tensor.offset, tensor.offset + tensor.bytes];
        let entry = serde_json::json!({
            "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets,
        });
        root.insert(tensor.name.clone(), entry);
    }
    let mut text = serde_json::Value::Object(root).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    text
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
