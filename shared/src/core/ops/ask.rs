//! What a request is checked against. A check looks at everything and changes nothing: what it accepts is
//! done by the verb, what it refuses leaves the job as it was.
use crate::core::config::CoreConfig;
use crate::core::ops::refusal::Refusal;
use crate::core::roster::nodes::Placement;
use crate::core::state::{JobState, State};
use crate::ids::{NodeId, Role};

/// What a request is checked against.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Ask<'a> {
    /// The job's values.
    pub config: &'a CoreConfig,
    /// The values that the gang has from the next step boundary on, where they are others.
    pub next_config: Option<&'a CoreConfig>,
    /// All that is remembered.
    pub state: &'a State,
    /// Where whom there is room for.
    pub placement: Placement<'a>,
}

impl Ask<'_> {
    /// Requests are for a job that runs.
    pub fn running_job(&self) -> Result<(), Refusal> {
        let state = match &self.state.job {
            JobState::Running => return Ok(()),
            JobState::Over(outcome) => outcome.shown().word(),
            JobState::New => "not started",
        };
        Err(Refusal::JobOver {
            state: state.to_owned(),
        })
    }

    /// There is such a place.
    pub fn place(&self, role: Role, index: u32) -> Result<(), Refusal> {
        let count = self.state.roster.instances().count(role);
        match index < count {
            true => Ok(()),
            false => Err(Refusal::UnknownIndex { role, index, count }),
        }
    }

    /// The node of that name.
    pub fn node(&self, name: &str) -> Result<NodeId, Refusal> {
        let nodes = self.state.roster.nodes();
        nodes.by_name(name).ok_or_else(|| Refusal::UnknownNode {
            node: name.to_owned(),
            instead: nodes.instead_of(name),
        })
    }
}
