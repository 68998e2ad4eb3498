//! The weights (`core/weights`): who is there is told to them, and what their pulls found out is told to those
//! who judge it.
use crate::core::Core;
use crate::core::detect::{corruption, exception};
use crate::core::effects::Cx;
use crate::core::input::PullFailure;
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Current;
use crate::core::weights::{Failed, PullOrder, Weights};
use crate::ids::{Generation, Incarnation, InstanceId, WeightVersion};

impl Core {
    /// Whom an engine pulls from as far as the controller knows; nobody: it has no order.
    pub fn pulls_from(&self, puller: Incarnation) -> &[Incarnation] {
        self.s.weights.sources_of(puller)
    }

    /// What an engine serves as far as the controller knows.
    pub fn version_of(&self, engine: Incarnation) -> Option<WeightVersion> {
        self.s.weights.version_of(engine)
    }

    /// The weights, and what they are given with whatever they are to take in.
    pub(in crate::core) fn weights(&mut self) -> (&mut Weights, Cx<'_>) {
        let cx = Cx {
            now: self.now,
            config: &self.config,
            out: &mut self.out,
        };
        (&mut self.s.weights, cx)
    }

    pub(in crate::core) fn plan_pulls(&mut self) {
        self.derive();
        let serve = self.ranks_serve();
        let (weights, mut cx) = self.weights();
        weights.plan(&mut cx, serve);
    }

    /// The version that can be read from the trainer's ranks.
    fn ranks_serve(&self) -> Option<WeightVersion> {
        let readable = self.s.gang.is_restored() && self.gang_attached();
        self.s.gang.serves().filter(|_| readable)
    }

    /// Nothing came of a pull for too long; whether it was still under way.
    pub(in crate::core) fn pull_stalls(
        &mut self,
        puller: InstanceId,
        order: PullOrder,
        source: Incarnation,
    ) -> bool {
        self.derive();
        let serve = self.ranks_serve();
        let (weights, mut cx) = self.weights();
        weights.stalled(&mut cx, puller, order, source, serve)
    }

    pub(in crate::core) fn on_pull_progress(
        &mut self,
        puller: Current,
        version: WeightVersion,
        bytes: u64,
        total: u64,
    ) {
        let (weights, cx) = self.weights();
        if weights.pull_progressed(&cx, puller.id, version, (bytes, total)) {
            self.spring(puller);
        }
    }

    pub(in crate::core) fn on_pulled(
        &mut self,
        puller: Current,
        ended: PullOrder,
        result: Result<(), PullFailure>,
    ) {
        let who = (puller.id, puller.incarnation);
        let (weights, mut cx) = self.weights();
        let Some(failed) = weights.pulled(&mut cx, who, ended, result) else {
            return;
        };
        let verdict = match failed {
            Failed::ByItself { times, reason } => {
                let i = self.s.roster.instances().of(puller);
                exception::pulls_failed(i, times, &reason)
            }
            Failed::Damaged { reason } => {
                let i = self.s.roster.instances().of(puller);
                corruption::damaged_itself(i, &reason)
            }
            Failed::Corrupt { source } => {
                let cx = Cx {
                    now: self.now,
                    config: &self.config,
                    out: &mut self.out,
                };
                let (roster, incidents) = (&mut self.s.roster, self.s.recover.incidents());
                let what = (source, ended.version);
                corruption::corrupt(&cx, roster, incidents, puller.id, what)
            }
        };
        if let Some(verdict) = verdict {
            self.fault(verdict);
        }
    }

    /// An instance has a new incarnation, or none (0): everything known of the old process is forgotten (I-1).
    pub(in crate::core) fn reborn(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        generation: Generation,
    ) -> Option<&mut Instance> {
        self.s.weights.reborn(&self.config, id, incarnation);
        self.s.roster.reborn(id, incarnation, generation, self.now)
    }
}
