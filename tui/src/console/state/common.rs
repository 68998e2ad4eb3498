//! What the screens have in common.
use super::sight::{Settings, Sight};
use crate::console::input::Input;
use crate::console::table::{Table, Turned};
use robust_proto::v1;
use std::ops::Deref;

/// What is seen, which only the state changes, and the table of instances: a row that is selected in it
/// on one screen is selected on the others too.
#[derive(Debug)]
pub struct Common {
    pub(super) sight: Sight,
    instances: Table<v1::RoleStatus>,
}

impl Deref for Common {
    type Target = Sight;

    fn deref(&self) -> &Sight {
        &self.sight
    }
}

impl Common {
    pub(super) fn new(settings: Settings, instances: Table<v1::RoleStatus>) -> Common {
        Common {
            sight: Sight::new(settings),
            instances,
        }
    }

    /// The table of instances.
    pub fn instances(&self) -> &Table<v1::RoleStatus> {
        &self.instances
    }

    /// The selected instance.
    pub fn chosen_instance(&self) -> Option<&v1::RoleStatus> {
        self.instances.chosen(self.job.roles(), self.look)
    }

    /// The marked instances, in the order of the status, also those that the filter leaves out.
    pub fn marked_instances(&self) -> Vec<&v1::RoleStatus> {
        self.instances.marked(self.job.roles())
    }

    /// Another job runs: its instances were not marked.
    pub(super) fn unmark(&mut self) {
        self.instances.unmark();
    }

    /// A status came: marks of instances that are gone go with them.
    pub(super) fn heard(&mut self) {
        let Common { sight, instances } = self;
        instances.heard(sight.job.roles());
    }

    /// Where the selected instance stands in the status.
    pub fn chosen_row(&self) -> Option<usize> {
        self.instances.chosen_row(self.job.roles(), self.look)
    }

    /// Those that the table's filter leaves, as they stand in the status.
    pub fn shown_instances(&self) -> Vec<usize> {
        self.instances.left(self.job.roles())
    }

    /// Selects the instance that stands there in the status.
    pub fn choose_instance(&mut self, row: usize) {
        let Common { sight, instances } = self;
        instances.choose_row(sight.job.roles(), row, sight.look);
    }

    /// Gives the table of instances an input, if it is one for a table.
    pub fn turn_instances(&mut self, input: &Input) -> Option<Turned> {
        let Common { sight, instances } = self;
        instances.on(input, sight.job.roles(), sight)
    }
}
