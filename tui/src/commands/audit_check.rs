//! `robustctl audit --verify`: whether the audit log is as it was written. It reads the files, so that it
//! needs no daemon and takes no daemon's word.
use crate::error::CliError;
use crate::output::{put, put_json};
use robust_shared::audit::{Check, FILE, Found, HEAD, Head, older_file, older_number};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::path::Path;

/// Looks at the log of a state directory; an error when something is wrong with it.
pub fn run(state: &Path, json: bool) -> Result<(), CliError> {
    let failed = |e: io::Error| {
        CliError::Usage(format!(
            "the audit log in {} cannot be read: {e}",
            state.display()
        ))
    };
    let found = check(state).map_err(failed)?;
    match json {
        true => put_json(&found)?,
        false => put(&text(&found))?,
    }
    match found.damage.len() {
        0 => Ok(()),
        1 => Err(CliError::Failed(
            "the audit log was tampered with in 1 place".to_owned(),
        )),
        n => Err(CliError::Failed(format!(
            "the audit log was tampered with in {n} places"
        ))),
    }
}

fn check(state: &Path) -> io::Result<Found> {
    // First, so that what is written meanwhile comes after it.
    let noted = noted(&state.join(HEAD))?;
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(state)? {
        numbers.extend(entry?.file_name().to_str().and_then(older_number));
    }
    numbers.sort_unstable();
    let is_whole = numbers.first().is_none_or(|first| *first == 1);
    let names = numbers.into_iter().map(older_file);
    let mut check = Check::new(noted, is_whole);
    for name in names.chain([FILE.to_owned()]) {
        match File::open(state.join(&name)) {
            // Of a directory that never had a log; of one that had, its head says that it is gone.
            Err(e) if e.kind() == ErrorKind::NotFound && name == FILE => {}
            file => take(&mut check, &name, file?)?,
        }
    }
    Ok(check.end(FILE))
}

fn noted(path: &Path) -> io::Result<Option<Head>> {
    match std::fs::read_to_string(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        text => Ok(Head::parse(&text?)),
    }
}

fn take(check: &mut Check, name: &str, file: File) -> io::Result<()> {
    let (mut file, mut line, mut number) = (BufReader::new(file), Vec::new(), 0);
    loop {
        line.clear();
        // A line without its end is being written, or was when the machine went down.
        if file.read_until(b'\n', &mut line)? == 0 || !line.ends_with(b"\n") {
            return Ok(());
        }
        number += 1;
        check.line(name, number, &line);
    }
}

fn text(found: &Found) -> String {
    let Found {
        lines,
        without_chain,
        first,
        last,
        head,
        end_known,
        damage,
    } = found;
    let mut text = String::new();
    for damage in damage {
        text += &format!("{damage}\n");
    }
    match (lines, damage.is_empty()) {
        (0, true) => text += "no line has a chain yet\n",
        (_, true) => {
            text += &format!("{lines} lines of the chain, {first} to {last}, are as written\n")
        }
        (_, false) => text += &format!("{lines} lines of the chain are there\n"),
    }
    if *without_chain > 0 {
        text +=
            &format!("{without_chain} lines are older than the chain, which begins after them\n");
    }
    if *first > 1 && damage.is_empty() {
        text += "older files were removed\n";
    }
    if !end_known {
        text +=
            &format!("{HEAD} is not there: whether lines are missing at the end is not known\n");
    }
    if *lines > 0 {
        text += &format!("head {last} {head}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_without_a_log_has_nothing_wrong_with_it() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path(), true).unwrap();
        let error = run(&dir.path().join("none"), true).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
    }
}
