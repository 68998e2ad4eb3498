//! What ranks of the user's own must be.
use super::super::error::Problem;
use super::super::validate::{bad, time};
use super::super::{Job, TrainerCommand};
use super::check::{Program, check_stop};
use super::placeholder::Scope;

const AT: &str = "trainer.command";

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
        })?;
        time(&format!("{AT}.ready.timeout_s"), c.ready.timeout_s)?;
        check_stop(AT, &c.stop)?;
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
