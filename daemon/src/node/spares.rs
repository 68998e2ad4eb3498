//! Spares that the leader wants here.
use super::actor::Actor;
use crate::spares::{self, Wanted};
use robust_proto::v1;
use robust_proto::v1::node_message::Body as Up;
use robust_shared::ids::Role;

/// What the leader wants here, and what it was told is here.
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// For which revision of the job. None since something is started: the job is not whole, and the leader says when
    /// it is.
    wanted: Option<(u32, Wanted)>,
    told: Vec<v1::SpareStatus>,
}

impl Spares {
    /// Something is started here.
    pub fn wait(&mut self) {
        self.wanted = None;
    }

    /// Another leader, or the same one over another link, was told nothing.
    pub fn untold(&mut self) {
        self.told.clear();
    }
}

impl Actor {
    pub(super) fn on_keep_spares(&mut self, order: &v1::KeepSpares) {
        let known = |wanted: &v1::WantedSpares| {
            let role = wanted.role.parse::<Role>().ok()?;
            Some((role, wanted.count))
        };
        let wanted = order.wanted.iter().filter_map(known).collect();
        self.spares.wanted = Some((order.revision, wanted));
        self.look_after_spares();
    }

    /// Starts those that are missing, and tells the leader what changed.
    pub(super) fn look_after_spares(&mut self) {
        if let (Some((revision, wanted)), Some(Ok(plan))) = (&self.spares.wanted, &self.plan) {
            // A revision of the job comes with the first life that reads it. Spares of the one before can be none of it.
            match self.state.job_revision(*revision).exists() {
                true => spares::keep(&self.launcher, plan, *revision, wanted),
                false => self.launcher.end_spares(),
            }
        }
        let seen: Vec<_> = self.launcher.spares().iter().map(spares::shown).collect();
        if seen != self.spares.told && self.up.is_some() {
            let spares = seen.clone();
            self.say(Up::Spares(v1::NodeSpares { spares }));
            self.spares.told = seen;
        }
    }
}
