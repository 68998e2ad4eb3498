//! The manual's page and the completions, made from the command line's own description.
use super::args::{Args, ExitCode};
use super::failure::Failure;
use clap::CommandFactory;
use std::io::{self, Write};

const NAME: &str = "robustd";

/// Prints the page.
pub(super) fn page() -> Result<ExitCode, Failure> {
    let mut page = Vec::new();
    let made = clap_mangen::Man::new(Args::command()).render(&mut page);
    made.and_then(|()| put(&page)).map_err(unwritten)
}

/// Prints the script.
pub(super) fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), NAME, &mut script);
    put(&script).map_err(unwritten)
}

fn put(text: &[u8]) -> io::Result<ExitCode> {
    io::stdout().write_all(text)?;
    Ok(ExitCode::Completed)
}

fn unwritten(source: io::Error) -> Failure {
    Failure::Start {
        what: "the printing",
        source,
    }
}
