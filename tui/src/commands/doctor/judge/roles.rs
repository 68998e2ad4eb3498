//! The job's programs, started once: `--check-roles`.
use super::super::check::Check;
use super::super::facts::{CommandFacts, Facts, Tried};
use crate::format::millis;
use robust_shared::trial::{Ended, Up};

const NAME: &str = "started once";

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let job = facts.job.as_ref().and_then(|job| job.as_ref().ok());
    let commands = job.into_iter().flat_map(|job| &job.commands);
    let tried = commands.filter_map(|c| Some(one(c, c.tried.as_ref()?)));
    tried.collect()
}

fn one(command: &CommandFacts, tried: &Tried) -> Check {
    let at = &command.at;
    let up = match &tried.came_up {
        Ok(up) => up,
        Err(failure) => {
            let left = match &tried.ended {
                Some(Ok(ended)) => left(ended),
                _ => String::new(),
            };
            let found = format!("{at}: {}{left}", failure.reason);
            return Check::fail(NAME, found, failure.cure.clone()).with_log(&tried.log);
        }
    };
    let program = match &command.program {
        Ok(path) => path.display().to_string(),
        Err(_) => "it".to_owned(),
    };
    let found = format!("{at}: {program} {}", came_up(up));
    let caution = up.engine.as_ref().and_then(|e| e.caution.clone());
    match &tried.ended {
        Some(Ok(ended)) if !ended.left.is_empty() => {
            let found = format!("{found}{}", left(ended));
            let fix = "end them by hand; a job would wait for them before it starts the next one";
            Check::fail(NAME, found, fix)
        }
        Some(Ok(ended)) if !ended.killed.is_empty() => {
            let killed = ended.killed.join(", ");
            let found = format!("{found}; killed, as they did not end in time: {killed}");
            let fix = format!("raise [{at}] stop.grace_s, or name another stop.signal");
            Check::warn(NAME, found, fix)
        }
        Some(Ok(ended)) => {
            let found = format!("{found}, ended in {}", millis(ended.after_s * 1e3));
            match caution {
                Some(caution) => Check::warn(
                    NAME,
                    format!("{found}; {caution}"),
                    "install the tested version, or see that a drill with it passes",
                ),
                None => Check::ok(NAME, found),
            }
        }
        Some(Err(reason)) => {
            let fix = "see with `ps` whether it still runs, and end it by hand";
            Check::fail(
                NAME,
                format!("{found}; how it ended is not known: {reason}"),
                fix,
            )
        }
        None => Check::fail(NAME, format!("{found}; it was not ended"), "end it by hand"),
    }
}

fn came_up(up: &Up) -> String {
    let is = up.engine.as_ref().map(|engine| {
        let tested = match engine.caution {
            None => ", which is tested",
            Some(_) => "",
        };
        format!("is {} {}{tested}; ", engine.kind.name(), engine.version)
    });
    format!(
        "{}up after {}, {} in {}",
        is.unwrap_or_default(),
        millis(up.after_s * 1e3),
        up.asked,
        millis(up.answered_s * 1e3)
    )
}

fn left(ended: &Ended) -> String {
    match ended.left.as_slice() {
        [] => String::new(),
        left => format!("; processes of it are left: {}", left.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::check::Verdict;
    use robust_shared::job::EngineKind;
    use robust_shared::trial::{Failure, Version};

    fn judged(came_up: Result<Up, Failure>, ended: Ended) -> Check {
        let tried = Tried {
            came_up,
            log: vec!["Out of memory".to_owned()],
            ended: Some(Ok(ended)),
        };
        let command = CommandFacts {
            at: "rollout.command".to_owned(),
            program: Ok("/bin/vllm".into()),
            unset: Vec::new(),
            hidden: None,
            engine: None,
            tried: Some(tried.clone()),
        };
        one(&command, &tried)
    }

    fn up(caution: Option<&str>) -> Up {
        Up {
            engine: Some(Version {
                kind: EngineKind::Vllm,
                version: "0.32.0".to_owned(),
                caution: caution.map(str::to_owned),
            }),
            after_s: 12.0,
            asked: "8 tokens".to_owned(),
            answered_s: 0.21,
        }
    }

    #[test]
    fn a_program_that_works_is_told_in_a_line() {
        let ended = Ended {
            after_s: 0.4,
            ..Ended::default()
        };
        let check = judged(Ok(up(None)), ended);
        assert_eq!(check.verdict, Verdict::Ok);
        let expected = "rollout.command: /bin/vllm is vllm 0.32.0, which is tested; up after \
                        12.0 s, 8 tokens in 210 ms, ended in 400 ms";
        assert_eq!(check.found, expected);
    }

    #[test]
    fn what_needs_a_look_and_what_is_of_no_use_are_told_with_their_fix() {
        let caution = Some("vLLM 0.33.0 was never tried");
        assert_eq!(
            judged(Ok(up(caution)), Ended::default()).verdict,
            Verdict::Warn
        );
        let killed = Ended {
            killed: vec!["VLLM::Worker (pid 7)".to_owned()],
            ..Ended::default()
        };
        let check = judged(Ok(up(None)), killed);
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(
            check.found.ends_with("in time: VLLM::Worker (pid 7)"),
            "{}",
            check.found
        );
        let left = Ended {
            left: vec!["VLLM::Worker (pid 7)".to_owned()],
            ..Ended::default()
        };
        assert_eq!(judged(Ok(up(None)), left).verdict, Verdict::Fail);
        let failure = Failure {
            reason: "vllm (pid 7) ended: exit code 1".to_owned(),
            cure: "see the end of its log for why".to_owned(),
        };
        let check = judged(Err(failure), Ended::default());
        assert_eq!(check.verdict, Verdict::Fail);
        assert_eq!(
            check.found,
            "rollout.command: vllm (pid 7) ended: exit code 1"
        );
        assert_eq!(check.fix.as_deref(), Some("see the end of its log for why"));
        assert_eq!(check.log, ["Out of memory"]);
    }
}
