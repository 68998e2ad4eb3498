//! Trajectories as files for other tools.
use super::parquet::Writer;
use super::{ask, name, next};
use crate::cli::{TrajFilter, TrajFormat};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::output::{fit, put, put_json};
use indicatif::ProgressBar;
use robust_proto::v1;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Stdout, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where they go: a line or a row each.
enum Sink {
    Stdout(BufWriter<Stdout>),
    Lines(BufWriter<File>),
    Parquet(Box<Writer>),
}

pub(super) async fn run(
    endpoint: &Endpoint,
    filter: &TrajFilter,
    to: &Path,
    format: Option<TrajFormat>,
    json: bool,
) -> Result<(), CliError> {
    let stdout = to == Path::new("-");
    let by_name = match to.extension() {
        Some(extension) if extension == "parquet" => TrajFormat::Parquet,
        _ => TrajFormat::Jsonl,
    };
    let format = format.unwrap_or(by_name);
    if stdout && format == TrajFormat::Parquet {
        return Err(CliError::Usage(
            "Parquet cannot go to stdout; name a file".to_owned(),
        ));
    }
    let mut stream = ask(endpoint, filter, true).await?;
    // Whole or not there, whoever else exports to that name.
    let partial = PathBuf::from(format!("{}.{}.partial", to.display(), std::process::id()));
    let place = if stdout {
        None
    } else {
        Some(partial.as_path())
    };
    let mut sink = open(place, format).map_err(|e| unwritable(to, &e))?;
    let bar = ProgressBar::new_spinner().with_message("trajectories");
    bar.enable_steady_tick(Duration::from_millis(100));
    let (mut count, mut tokens) = (0_u64, 0_u64);
    let written = async {
        while let Some(t) = next(endpoint, &mut stream).await? {
            (count, tokens) = (count + 1, tokens + t.tokens);
            bar.set_message(format!("{count} trajectories"));
            sink.put(&t).map_err(|e| unwritable(to, &e))?;
        }
        let closed = sink.close();
        let placed = closed.and_then(|()| place.map_or(Ok(()), |partial| in_place(partial, to)));
        placed.map_err(|e| unwritable(to, &e))
    };
    let written = written.await;
    bar.finish_and_clear();
    if let Err(error) = written {
        // The error at hand is the one to tell.
        let _ = place.map(std::fs::remove_file);
        return Err(error);
    }
    if stdout {
        return Ok(());
    }
    match json {
        true => put_json(&json!({
            "file": to.display().to_string(), "trajectories": count, "tokens": tokens,
        })),
        false => put(&format!(
            "{count} trajectories, {tokens} generated tokens, written to {}\n",
            to.display()
        )),
    }
}

fn unwritable(to: &Path, error: &io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::OutputClosed,
        _ => CliError::Failed(format!("{} cannot be written: {error}", to.display())),
    }
}

/// Gives it its name, which it has after a power loss, too.
fn in_place(partial: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(partial, to)?;
    let folder = match to.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

fn open(place: Option<&Path>, format: TrajFormat) -> io::Result<Sink> {
    Ok(match (place, format) {
        (None, _) => Sink::Stdout(BufWriter::new(io::stdout())),
        (Some(path), TrajFormat::Jsonl) => Sink::Lines(BufWriter::new(File::create(path)?)),
        (Some(path), TrajFormat::Parquet) => {
            Sink::Parquet(Box::new(Writer::new(File::create(path)?)?))
        }
    })
}

impl Sink {
    fn put(&mut self, t: &v1::Trajectory) -> io::Result<()> {
        match self {
            Sink::Stdout(out) => writeln!(out, "{}", fit(&line(t).to_string(), out.get_ref())),
            Sink::Lines(out) => writeln!(out, "{}", line(t)),
            Sink::Parquet(writer) => writer.put(t),
        }
    }

    /// A file is on the disk then, not only in the page cache: its name is given to it next.
    fn close(self) -> io::Result<()> {
        match self {
            Sink::Stdout(mut out) => out.flush(),
            Sink::Lines(out) => {
                let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.sync_all()
            }
            Sink::Parquet(writer) => writer.close(),
        }
    }
}

/// The JSON object of a line. Logprobs are of generated tokens; those of tools have none.
fn line(t: &v1::Trajectory) -> Value {
    let span = |s: &v1::Span| json!({"ids": s.ids, "logprobs": s.logprobs, "version": s.version});
    let turn = |turn: &v1::Turn| {
        json!({
            "index": turn.index,
            "spans": turn.spans.iter().map(span).collect::<Vec<_>>(),
            "tool_call": turn.tool_call, "tool_result": turn.tool_result, "tool_ids": turn.tool_ids,
        })
    };
    json!({
        "trajectory": name(t), "batch": t.batch, "group": t.group, "member": t.member,
        "state": t.state, "prompt_ids": t.prompt_ids,
        "turns": t.turns.iter().map(turn).collect::<Vec<_>>(),
        "reward": t.reward, "answer": t.answer, "oldest_version": t.oldest_version,
        "consumed_by": t.consumed_by, "staleness": t.staleness,
    })
}
