//! What failed (`core/recover`): verdicts are told to it, with what the others know, and what its incidents
//! bring about is done to instances.
use crate::core::Core;
use crate::core::detect::Verdict;
use crate::core::effects::Cx;
use crate::core::recover::cause::Recurring;
use crate::core::recover::restart::Plan;
use crate::core::recover::testimony::Seen;
use crate::core::recover::{Around, Opened, Recover, Witnesses, struck};
use crate::core::roster::instances::Current;
use crate::ids::{Incarnation, IncidentId, InstanceId, Role};

impl Core {
    /// What failed, and what it is given with whatever it is to take in.
    pub(in crate::core) fn recover(&mut self) -> (&mut Recover, Cx<'_>) {
        let (recover, cx, _) = self.recover_and_around();
        (recover, cx)
    }

    /// The same, and what it looks at of the others. The index is to be up to date.
    fn recover_and_around(&mut self) -> (&mut Recover, Cx<'_>, Around<'_>) {
        let s = &mut self.s;
        let around = Around {
            instances: s.roster.instances(),
            index: s.roster.index(),
            gang: &s.gang,
            weights: &s.weights,
            work: &s.work,
            committed: s.committed,
            pauses: s.orders.pause().is_some(),
        };
        let cx = Cx {
            now: self.now,
            config: &self.config,
            out: &mut self.out,
        };
        (&mut s.recover, cx, around)
    }

    /// Opens an incident for a verdict and its plan.
    pub(in crate::core) fn open_incident(
        &mut self,
        verdict: &Verdict,
        plan: &Plan,
        cause: Option<Recurring>,
        innocent: bool,
    ) -> IncidentId {
        let life = self.s.roster.instances().get(verdict.who);
        let opened = Opened {
            verdict,
            plan,
            cause,
            innocent,
            incarnation: life.map(|i| i.incarnation()).unwrap_or_default(),
            struck: struck(self.s.roster.instances(), verdict, self.now),
            committed: self.s.committed,
        };
        let (recover, mut cx) = self.recover();
        recover.open(&mut cx, opened)
    }

    /// Writes an incident to the journal as it is now.
    pub(in crate::core) fn record_incident(&mut self, id: IncidentId) {
        self.s.recover.record(&mut self.out, id);
    }

    /// Notes the first instant of a stage in every recovery that covers the instance.
    pub(in crate::core) fn mark(&mut self, id: InstanceId, name: &str) {
        self.s.recover.mark(self.now, id, name);
    }

    /// Notes in every recovery of which all processes are started that they are.
    pub(in crate::core) fn mark_spawned(&mut self) {
        self.derive();
        let (recover, cx, around) = self.recover_and_around();
        recover.mark_spawned(cx.now, &around);
    }

    /// Notes which recoveries have their processes back, and closes those whose work goes on.
    pub(in crate::core) fn advance_recoveries(&mut self) {
        self.derive();
        let (recover, mut cx, around) = self.recover_and_around();
        if recover.take_due() {
            recover.advance(&mut cx, &around);
        }
    }

    /// Notes an incarnation that ends with the recoveries that cover its place.
    pub(in crate::core) fn sweep(&mut self, id: InstanceId, life: Incarnation) {
        let condemned = self
            .s
            .roster
            .instances()
            .get(id)
            .and_then(|i| i.condemned());
        if let Some(condemned) = condemned {
            // Another fault restarts it, too: what was found of its hang until now is all there is.
            self.conclude(condemned.incident, false);
        }
        self.s.recover.sweep(id, life);
    }

    /// Asks for the evidence of everybody who may be part of the hang.
    pub(in crate::core) fn ask_for_evidence(&mut self, who: InstanceId, incident: IncidentId) {
        let witnesses = Witnesses {
            config: &self.config,
            instances: self.s.roster.instances(),
            nodes: self.s.roster.nodes(),
            work: &self.s.work,
        };
        let asked = witnesses.of(who);
        self.s.recover.ask(&mut self.out, incident, asked);
    }

    /// What was found of one process. A hang goes on to its end when nobody else is waited for.
    pub(in crate::core) fn on_evidence(&mut self, current: Current, text: &str, seen: &Seen) {
        for heard in self.s.recover.testify(current.incarnation, text, seen) {
            let hung = self.s.roster.get_mut(heard.who);
            if let Some(hung) = hung.filter(|_| heard.is_whole) {
                hung.evidence_is_in(heard.incident, self.now);
            }
        }
    }

    /// The evidence is in, as far as it is waited for. `late`: what is missing had its time.
    pub(in crate::core) fn conclude(&mut self, id: IncidentId, late: bool) {
        let (recover, mut cx, around) = self.recover_and_around();
        recover.conclude(&mut cx, around.instances, id, late);
        self.count_hang_on_node(id);
    }

    /// Counts what a verdict came of; none where that came from outside. A death that is not its own doing is
    /// not counted.
    pub(in crate::core) fn count_cause(
        &mut self,
        verdict: &Verdict,
        is_innocent: bool,
    ) -> Option<Recurring> {
        let cause = verdict.cause.clone()?;
        let causes = match verdict.who.role {
            // Of ranks it is the gang that fails.
            Role::Trainer => self.s.gang.causes_mut(),
            Role::Hybrid | Role::Rollout | Role::Agent => {
                self.s.roster.get_mut(verdict.who)?.causes_mut()
            }
        };
        Some(causes.count(&self.config, cause, is_innocent, self.now))
    }
}
