//! What environments of the user's own must be.
use super::super::error::Problem;
use super::super::validate::time;
use super::super::{AgentCommand, Job};
use super::check::{Program, check_stop};
use super::placeholder::Scope;

const AT: &str = "agent.command";

impl Job {
    pub(super) fn check_agent_command(&self, c: &AgentCommand) -> Result<(), Problem> {
        self.check_program(&Program {
            at: AT.to_owned(),
            scope: Scope::Agent,
            argv: &c.argv,
            env: &c.env,
            inherit: &c.inherit,
            ports: 0,
            user: c.user.as_deref(),
        })?;
        time(&format!("{AT}.ready.timeout_s"), c.ready.timeout_s)?;
        time(&format!("{AT}.silent_s"), c.silent_s)?;
        check_stop(AT, &c.stop)
    }
}
