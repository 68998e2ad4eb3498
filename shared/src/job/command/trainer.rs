//! What ranks of the user's own must be.
use super::super::error::Problem;
use super::super::validate::{bad, time, whole};
use super::super::{Job, Launcher, Level, TrainerCommand};
use super::check::{MOST_SLOTS, Program, check_stop};
use super::placeholder::{Placeholder, Scope};
use super::template::Template;
use crate::phase::Phase;

const AT: &str = "trainer.command";
/// Bytes that the page of phases has for a name.
const LONGEST_PHASE: usize = 40;

impl Job {
    pub(super) fn check_trainer_command(&self, c: &TrainerCommand) -> Result<(), Problem> {
        let argv = [c.argv.as_slice(), &c.restore_args].concat();
        self.check_program(&Program {
            at: AT.to_owned(),
            scope: Scope::Trainer,
            argv: &argv,
            env: &c.env,
            inherit: &c.inherit,
            ports: c.ports,
            user: c.user.as_deref(),
        })?;
        check_ready(c)?;
        for (at, pattern) in c.errors.iter().enumerate() {
            expression(&format!("{AT}.errors.{at}"), pattern)?;
        }
        check_stop(AT, &c.stop)?;
        whole(&format!("{AT}.slots"), c.slots.into(), 1, MOST_SLOTS)?;
        if c.launcher == Launcher::Job && self.trainer.ranks != 1 {
            let must = "one program is all of it; write 1, or `trainer.command.launcher = \"node\"` for one a node";
            return Err(bad("trainer.ranks", self.trainer.ranks, must));
        }
        check_phases(c)?;
        self.check_level(c)?;
        match self.hybrid() {
            false => Ok(()),
            true => {
                let must = "a program of the user's keeps its device's memory while it waits, so no \
                            engine can share its slot; set `trainer.hybrid = false`";
                Err(bad("trainer.hybrid", true, must))
            }
        }
    }
}

impl TrainerCommand {
    /// Whether its processes can be started before it is known which rank each will be, and wait in `attach()` until
    /// then: not where something else starts the ranks, where nothing attaches, where the files of a rank are another
    /// user's, or where the command line itself says which rank it is.
    pub fn can_wait(&self) -> bool {
        let is_common = |text: &String| {
            let template = Template::parse(text);
            template.is_ok_and(|of| of.placeholders().all(Placeholder::is_common))
        };
        self.launcher == Launcher::Rank
            && self.level > Level::None
            && self.user.is_none()
            && self.argv.iter().chain(&self.restore_args).all(is_common)
    }
}

/// As a page of phases has room for them, and as nobody else has named one.
fn check_phases(c: &TrainerCommand) -> Result<(), Problem> {
    let key = format!("{AT}.phases");
    for (at, name) in c.phases.iter().enumerate() {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let must = if name.is_empty() || name.len() > LONGEST_PHASE || !name.chars().all(fits) {
            "use 1 to 40 small letters, digits or `_`"
        } else if name.parse::<Phase>().is_ok() {
            "the rules know that phase by themselves; remove it"
        } else if c.phases[..at].contains(name) {
            "it is named twice; remove one"
        } else {
            continue;
        };
        return Err(bad(&format!("{key}.{at}"), format!("{name:?}"), must));
    }
    match c.level {
        Level::None if !c.phases.is_empty() => {
            let must = "remove it: a program of level \"none\" tells none";
            Err(bad(&key, "set", must))
        }
        _ => Ok(()),
    }
}

fn check_ready(c: &TrainerCommand) -> Result<(), Problem> {
    let (ready, key) = (&c.ready, |name| format!("{AT}.ready.{name}"));
    time(&key("timeout_s"), ready.timeout_s)?;
    let given = [
        ("log", ready.log.is_some()),
        ("file", ready.file.is_some()),
        ("after_s", ready.after_s.is_some()),
    ];
    let mut given = given.into_iter().filter(|(_, is)| *is);
    let Some((name, _)) = given.next() else {
        return Ok(());
    };
    if c.level > Level::None {
        let must = format!(
            "remove it: a program of level \"{}\" is up when it attached",
            c.level.name()
        );
        return Err(bad(&key(name), "set", must));
    }
    if let Some((other, _)) = given.next() {
        let must = format!("one thing says that it is up; remove it or `{}`", key(name));
        return Err(bad(&key(other), "set", must));
    }
    match (&ready.log, ready.after_s) {
        (Some(pattern), _) => expression(&key("log"), pattern),
        (_, Some(seconds)) => time(&key("after_s"), seconds),
        _ => Ok(()),
    }
}

/// A regular expression of the user's.
fn expression(key: &str, pattern: &str) -> Result<(), Problem> {
    let wrong = |error: regex::Error| {
        let text = error.to_string();
        // The last line says what; those before it draw where.
        let what = text.lines().last().unwrap_or_default();
        let what = what.trim_start_matches("error: ").to_owned();
        bad(
            key,
            format!("{pattern:?}"),
            format!("it is no regular expression: {what}"),
        )
    };
    regex::Regex::new(pattern).map(drop).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn can_wait(more: &str) -> bool {
        let text = format!("{more}\n");
        toml::from_str::<TrainerCommand>(&text).is_ok_and(|command| command.can_wait())
    }

    #[test]
    fn a_program_waits_for_its_rank_unless_its_command_line_or_its_launcher_says_which_it_is() {
        let argv = "argv = ['{env:PYTHON}', 'train.py', '{model}', '{job}']";
        assert!(can_wait(argv));
        assert!(can_wait(&format!("{argv}\nenv = {{ A = '{{rank}}' }}")));
        for unlike in [
            "launcher = 'node'",
            "launcher = 'job'",
            "level = 'none'",
            "user = 'nobody'",
            "restore_args = ['--generation', '{generation}']",
        ] {
            assert!(!can_wait(&format!("{argv}\n{unlike}")), "{unlike}");
        }
        for placeholder in ["rank", "port", "devices", "state", "master_addr"] {
            let argv = format!("argv = ['x', '{{{placeholder}}}']");
            assert!(!can_wait(&argv), "{placeholder}");
        }
    }
}
