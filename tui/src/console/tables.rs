//! Which rows the tables hold, and which of them is selected.
use super::drills::{DrillFile, DrillRun};
use super::event::Action;
use super::screen::{Screen, TableId};
use super::state::State;
use super::table::{Spec, View};
use super::ui::{drills, incidents, nodes, roles, stores, tree};
use robust_proto::v1;

impl State {
    /// The table that the keys go to.
    pub fn focus(&self) -> TableId {
        match self.screen {
            Screen::Overview | Screen::Roles | Screen::Timeline => TableId::Roles,
            Screen::Weights => TableId::Weights,
            Screen::Store => self.store_pane,
            Screen::Incidents => TableId::Incidents,
            Screen::Nodes => TableId::Nodes,
            Screen::Drills => TableId::Drills,
        }
    }

    /// How many columns a table has.
    pub(super) fn columns(&self, id: TableId) -> usize {
        match id {
            TableId::Roles => roles::SPEC.columns.len(),
            TableId::Weights => tree::SPEC.columns.len(),
            TableId::Checkpoints => stores::CHECKPOINTS.columns.len(),
            TableId::Trajectories => stores::TRAJECTORIES.columns.len(),
            TableId::Incidents => incidents::SPEC.columns.len(),
            TableId::Nodes => nodes::SPEC.columns.len(),
            TableId::Drills => drills::SPEC.columns.len(),
        }
    }

    /// Names of a table's rows as they are shown.
    pub fn names(&self, id: TableId) -> Vec<String> {
        match id {
            TableId::Roles => self.names_of(id, &roles::SPEC, self.job.roles()),
            TableId::Weights => self.names_of(id, &tree::SPEC, &self.tree()),
            TableId::Checkpoints => self.names_of(id, &stores::CHECKPOINTS, self.checkpoints()),
            TableId::Trajectories => self.names_of(id, &stores::TRAJECTORIES, self.trajectories()),
            TableId::Incidents => self.names_of(id, &incidents::SPEC, self.job.incidents()),
            TableId::Nodes => self.names_of(id, &nodes::SPEC, self.job.nodes()),
            TableId::Drills => self.names_of(id, &drills::SPEC, self.drill_files()),
        }
    }

    fn names_of<T>(&self, id: TableId, spec: &Spec<T>, rows: &[T]) -> Vec<String> {
        let order = spec.order(self.view(id), rows, self.look);
        spec.names(&order, rows)
    }

    /// Moves a table's selection; its details are shown from their beginning.
    pub(super) fn select(&mut self, id: TableId, change: impl FnOnce(&mut View, &[String])) {
        let names = self.names(id);
        let before = self.view(id).position(&names);
        let view = self.view_mut(id);
        change(view, &names);
        if view.position(&names) != before {
            self.look_now();
        }
    }

    /// Name of the selected row.
    pub fn chosen_name(&self, id: TableId) -> Option<String> {
        let mut names = self.names(id);
        let at = self.view(id).position(&names)?;
        Some(names.swap_remove(at))
    }

    fn chosen<'a, T>(&self, id: TableId, spec: &Spec<T>, rows: &'a [T]) -> Option<&'a T> {
        let order = spec.order(self.view(id), rows, self.look);
        let at = self.view(id).position(&spec.names(&order, rows))?;
        rows.get(*order.get(at)?)
    }

    /// The selected instance.
    pub fn chosen_role(&self) -> Option<&v1::RoleStatus> {
        self.chosen(TableId::Roles, &roles::SPEC, self.job.roles())
    }

    /// The selected incident.
    pub fn chosen_incident(&self) -> Option<&v1::Incident> {
        self.chosen(TableId::Incidents, &incidents::SPEC, self.job.incidents())
    }

    /// The selected node.
    pub fn chosen_node(&self) -> Option<&v1::NodeStatus> {
        self.chosen(TableId::Nodes, &nodes::SPEC, self.job.nodes())
    }

    /// The selected drill.
    pub fn chosen_drill(&self) -> Option<&DrillFile> {
        self.chosen(TableId::Drills, &drills::SPEC, self.drill_files())
    }

    /// Who pulls from whom.
    pub fn tree(&self) -> Vec<tree::Branch> {
        self.job.status().map_or_else(Vec::new, tree::grow)
    }

    /// On disk.
    pub fn checkpoints(&self) -> &[super::stored::CheckpointRow] {
        let rows = self.stored.as_ref().map(|s| s.checkpoints.as_deref());
        rows.and_then(Result::ok).unwrap_or_default()
    }

    /// Not yet consumed.
    pub fn trajectories(&self) -> &[v1::Trajectory] {
        let rows = self.stored.as_ref().map(|s| s.trajectories.as_deref());
        rows.and_then(Result::ok).unwrap_or_default()
    }

    /// The drill files that there are.
    pub fn drill_files(&self) -> &[DrillFile] {
        self.drills.as_deref().unwrap_or_default()
    }

    /// Runs the selected drill, one at a time.
    pub(super) fn start_drill(&mut self) -> Vec<Action> {
        if self.read_only || self.playback.is_some() {
            self.tell("this console only reads".to_owned(), false);
            return Vec::new();
        }
        let running = self.drill.as_ref().filter(|run| run.end.is_none());
        if let Some(running) = running {
            let text = format!("drill {} is still running; X ends it", running.name);
            self.tell(text, false);
            return Vec::new();
        }
        let Some(file) = self.chosen_drill().cloned() else {
            return Vec::new();
        };
        if let Err(problem) = file.plan {
            self.tell(problem, false);
            return Vec::new();
        }
        self.drill = Some(DrillRun::new(file.name, self.now));
        vec![Action::RunDrill(file.path)]
    }
}
