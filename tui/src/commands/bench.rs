//! `robustctl bench`: starts `robust-bench`, where that is installed, with the same arguments. It measures, and is not in the
//! packages.
use crate::cli::BenchArgs;
use crate::error::CliError;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = "robust-bench";
/// Tells it in which folder the programs are that it measures.
const FOLDER: &str = "ROBUST_PROGRAMS";
const JSON: &str = "--json";

/// Becomes that program: the one beside this one, else the one on the path. Comes back only when it cannot be started.
pub fn run(args: &BenchArgs, json: bool) -> Result<(), CliError> {
    let unknown = |e| CliError::Failed(format!("cannot tell where robustctl is: {e}"));
    let own = std::env::current_exe().map_err(unknown)?;
    let folder = own.parent().unwrap_or(Path::new(""));
    let beside = folder.join(PROGRAM);
    let program = match beside.is_file() {
        true => beside.as_os_str(),
        false => OsStr::new(PROGRAM),
    };
    let mut command = Command::new(program);
    if json && !args.args.iter().any(|word| word == JSON) {
        command.arg(JSON);
    }
    command.args(&args.args);
    if std::env::var_os(FOLDER).is_none() {
        command.env(FOLDER, folder);
    }
    Err(unstarted(&command.exec(), folder))
}

fn unstarted(error: &io::Error, folder: &Path) -> CliError {
    CliError::Usage(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{PROGRAM}, which measures and is in no package, is neither in {} nor on the path: build it in a checkout of the \
             sources with `make build`, which leaves it in target/release",
            folder.display()
        ),
        _ => format!("{PROGRAM} cannot be started: {error}"),
    })
}
