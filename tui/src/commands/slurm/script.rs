//! The batch scripts: what differs from job to job first, then what is the same for all.
use super::folder::{Folder, Submitted};
use crate::error::CliError;

const FUNCTIONS: &str = include_str!("functions.sh");
const JOB: &str = include_str!("job.sh");
const NODE: &str = include_str!("node.sh");

/// Between the notice and the end: the step under way, the last checkpoint. Slurm may take a minute longer to send it.
const NOTICE_S: u32 = 120;

/// Options that the scripts themselves give, and what to do instead.
const OURS: [(&str, &str, &str); 4] = [
    (
        "-N",
        "--nodes",
        "say how many machines with `--nodes` before `--`",
    ),
    (
        "-n",
        "--ntasks",
        "each machine has one robustd; give it processors with --cpus-per-task",
    ),
    ("-a", "--array", "submit each job by itself"),
    ("", "--wrap", "the script is robustctl's"),
];

/// Refuses what would change the script's shape.
pub fn check_options(options: &[String]) -> Result<(), CliError> {
    for option in options {
        let long = |name: &str| {
            let rest = option.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        // `-N4`, but no long option.
        let short = |name: &str| !name.is_empty() && option.starts_with(name);
        let mut ours = OURS.iter();
        if let Some((_, name, instead)) = ours.find(|(s, l, _)| short(s) || long(l)) {
            let text = format!("{name} is not for sbatch here: {instead}");
            return Err(CliError::Usage(text));
        }
        if option.contains(['\n', '\r']) {
            let text = format!("{option:?}: an option of sbatch has one line");
            return Err(CliError::Usage(text));
        }
    }
    Ok(())
}

/// The script of the whole job.
pub fn of_job(folder: &Folder, submitted: &Submitted) -> String {
    let of = |pick: fn(&super::folder::Machine) -> &String| {
        let all: Vec<String> = submitted.machines.iter().map(|m| quoted(pick(m))).collect();
        all.join(" ")
    };
    let options: Vec<String> = submitted.options.iter().map(|o| quoted(o)).collect();
    let lines = [
        format!("job={}", quoted(&submitted.job.to_string_lossy())),
        format!("controllers={}", submitted.controllers),
        format!(
            "candidates={}",
            if submitted.candidates { "yes" } else { "" }
        ),
        format!("remote_log={}", quoted(&submitted.remote_log)),
        format!(
            "port={}",
            submitted.port.map_or_else(String::new, |p| p.to_string())
        ),
        format!("names=({})", of(|machine| &machine.name)),
        format!("pools=({})", of(|machine| &machine.pools)),
        format!("options=({})", options.join(" ")),
    ];
    let head = head(
        folder,
        submitted,
        (submitted.machines.len(), "%x-%j.log"),
        &submitted.sbatch,
    );
    format!("{head}{}\n\n{FUNCTIONS}\n{JOB}", lines.join("\n"))
}

/// The script of a node more, with these slots.
pub fn of_node(folder: &Folder, submitted: &Submitted, pools: &str, sbatch: &[String]) -> String {
    let head = head(folder, submitted, (1, "node-%j.log"), sbatch);
    format!("{head}pools={}\n\n{FUNCTIONS}\n{NODE}", quoted(pools))
}

fn head(
    folder: &Folder,
    submitted: &Submitted,
    (machines, log): (usize, &str),
    sbatch: &[String],
) -> String {
    let dir = folder.path().to_string_lossy();
    // `%` begins a pattern of Slurm's there.
    let log = format!("{}/{log}", dir.replace('%', "%%"));
    let mut lines = vec![
        "#!/bin/bash".to_owned(),
        format!("#SBATCH --job-name={}", for_sbatch(&submitted.name)),
        format!("#SBATCH --nodes={machines} --ntasks-per-node=1"),
        format!("#SBATCH --no-kill --requeue --signal=B:TERM@{NOTICE_S}"),
        format!("#SBATCH --output={} --open-mode=append", for_sbatch(&log)),
    ];
    if !sbatch.is_empty() {
        let all: Vec<String> = sbatch.iter().map(|option| for_sbatch(option)).collect();
        lines.push(format!("#SBATCH {}", all.join(" ")));
    }
    lines.extend([
        "# Written by robustctl slurm, which writes it again: what is changed here is lost."
            .to_owned(),
        format!("dir={}", quoted(&dir)),
        format!("local={}", quoted(&submitted.local.to_string_lossy())),
        format!("robustd={}", quoted(&submitted.robustd.to_string_lossy())),
        format!("drain={}", submitted.drain_s),
    ]);
    lines.join("\n") + "\n"
}

/// As one word of bash.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// As one word of an `#SBATCH` line, which knows quotes and backslashes; plain words stay so.
fn for_sbatch(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=:./,%+@[]".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("\"{}\"", word.replace('\\', r"\\").replace('"', "\\\"")),
    }
}

#[cfg(test)]
#[path = "script_runs.rs"]
mod runs;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::commands::slurm::folder::Machine;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    pub(super) fn submitted(names: &[&str]) -> Submitted {
        let machine = |name: &&str| Machine {
            name: (*name).to_owned(),
            pools: String::new(),
        };
        Submitted {
            name: "demo".to_owned(),
            job: PathBuf::from("/shared/it's a job.toml"),
            robustd: PathBuf::from("/opt/robustd"),
            local: PathBuf::from("/home/a/.local/state/robust/demo"),
            options: vec!["--metrics".to_owned(), "127.0.0.1:1".to_owned()],
            sbatch: vec!["--partition".to_owned(), "gpu".to_owned()],
            machines: names.iter().map(machine).collect(),
            controllers: 1,
            candidates: false,
            remote_log: String::new(),
            port: None,
            drain_s: 60,
            slurm_job: String::new(),
        }
    }

    /// What bash makes of a script's first part, up to the first function.
    fn evaluated(script: &str, ask: &str) -> String {
        let head = script.split("# --- the same").next().unwrap();
        let text = format!("{head}\n{ask}");
        let out = Command::new("bash").args(["-c", &text]).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    }

    #[test]
    fn the_scripts_are_bash_and_say_what_was_asked_for_word_by_word() {
        let folder = Folder::of_job(Some(Path::new("/shared/a b")), Path::new("x")).unwrap();
        let submitted = submitted(&["a", "b", "c'd"]);
        let script = of_job(&folder, &submitted);
        let said = evaluated(
            &script,
            "printf '%s|' \"$job\" \"$dir\" \"${names[@]}\" \"${options[@]}\"",
        );
        let said: Vec<&str> = said.split('|').collect();
        let expected = [
            "/shared/it's a job.toml",
            "/shared/a b",
            "a",
            "b",
            "c'd",
            "--metrics",
            "127.0.0.1:1",
            "",
        ];
        assert_eq!(said, expected);
        assert!(
            script.contains("\n#SBATCH --nodes=3 --ntasks-per-node=1\n"),
            "{script}"
        );
        assert!(script.contains("\n#SBATCH --partition gpu\n"), "{script}");
        assert!(
            script.contains("#SBATCH --output=\"/shared/a b/%x-%j.log\""),
            "{script}"
        );
        let node = of_node(&folder, &submitted, "train=1,rollout=2", &[]);
        assert!(
            node.contains("\n#SBATCH --nodes=1 ") && !node.contains("--partition"),
            "{node}"
        );
        for text in [script, node] {
            let temp = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(temp.path(), text).unwrap();
            let checked = Command::new("bash")
                .arg("-n")
                .arg(temp.path())
                .output()
                .unwrap();
            assert!(
                checked.status.success() && checked.stderr.is_empty(),
                "{checked:?}"
            );
        }
    }

    #[test]
    fn with_candidates_the_script_says_how_many_and_nothing_else_than_for_one_controller() {
        let folder = Folder::of_job(Some(Path::new("/shared/job")), Path::new("x")).unwrap();
        let one = submitted(&["a", "b", "c", "d"]);
        let several = Submitted {
            controllers: 3,
            candidates: true,
            remote_log: "file:///shared/log".to_owned(),
            ..one.clone()
        };
        let of = |submitted: &Submitted| {
            let script = of_job(&folder, submitted);
            let ask =
                "printf '%s|' \"$controllers\" \"$candidates\" \"$remote_log\" \"${#names[@]}\"";
            (evaluated(&script, ask), script)
        };
        let ((said_of_one, one), (said, several)) = (of(&one), of(&several));
        assert_eq!(said_of_one, "1|||4|");
        assert_eq!(said, "3|yes|file:///shared/log|4|");
        assert!(
            several.contains("\n#SBATCH --no-kill --requeue --signal=B:TERM@120\n"),
            "{several}"
        );
        let pairs = one.lines().zip(several.lines());
        let differ: Vec<&str> = pairs.filter(|(a, b)| a != b).map(|(_, b)| b).collect();
        let expected = [
            "controllers=3",
            "candidates=yes",
            "remote_log='file:///shared/log'",
        ];
        assert_eq!(differ, expected);
        assert_eq!(one.lines().count(), several.lines().count());
    }

    #[test]
    fn options_that_would_change_the_scripts_shape_are_refused_with_what_to_do_instead() {
        let check = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            check_options(&words).map_err(|e| e.to_string())
        };
        assert_eq!(
            check(&[
                "--partition=gpu",
                "--nodelist=n[1-3]",
                "-p",
                "gpu",
                "--no-requeue"
            ]),
            Ok(())
        );
        for wrong in [
            "-N4",
            "--nodes=4",
            "-n",
            "--ntasks=2",
            "--array=1-3",
            "--wrap=true",
        ] {
            assert!(
                check(&[wrong])
                    .unwrap_err()
                    .contains("is not for sbatch here"),
                "{wrong}"
            );
        }
        assert_eq!(check(&["--ntasks-per-node=1"]), Ok(()));
        assert!(check(&["--comment=a\nb"]).is_err());
    }
}
