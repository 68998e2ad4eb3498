//! Hardware: what a device shows of itself (`crate::hardware` says how grave it is). A device that
//! failed takes the slots of those that compute on it with it; one that announces a failure is
//! drained first: a rollout finishes its turns and moves, ranks move at the next step boundary
//! (`router/slots`). A device that nobody of the job uses is only reported.
use super::{Rule, Verdict};
use crate::core::output::Severity;
use crate::core::roster::instance::Instance;
use crate::core::{Core, FaultKind};
use crate::hardware::{Advice, Finding};
use crate::ids::{Incarnation, IncidentId, InstanceId, NodeId, Role};

/// A device that fails, or is about to.
pub const RULE: Rule = Rule {
    name: "hardware",
    roles: &Role::ALL,
    phases: &[],
    signal: "NVML: Xid, uncorrected ECC, row remap, device lost; trends of corrected ECC, throttling, \
             link replays; a driver call that hangs",
    action: "by the table of Xids: note; drain the slot before it fails; give the slot up and restart \
             elsewhere",
    kind: Some(FaultKind::Hardware),
    event: None,
    watch: None,
};

impl Core {
    /// Makes it known, and does what it calls for. `users`: whose processes compute on the device.
    pub(in crate::core) fn on_hardware(
        &mut self,
        node: NodeId,
        device: u32,
        finding: &Finding,
        users: &[Incarnation],
    ) {
        let advice = finding.advice();
        let severity = match advice {
            _ if self.config.rules.is_off(&RULE) => return,
            Advice::Ignore => return,
            Advice::Note => Severity::Info,
            Advice::Drain => Severity::Warn,
            Advice::Fault => Severity::Fault,
        };
        let node = self.node(node).map_or("?", |n| n.name.as_str());
        let shown = format!(
            "{node} device {device}: {} ({})",
            finding.kind, finding.text
        );
        self.event(
            severity,
            "hardware",
            None,
            format!("{shown}, advice: {advice}"),
        );
        // A process often ends of what its device does before the device is heard of: the next life is
        // in the same slot then.
        let place = |life: &Incarnation| {
            let instances = self.s.roster.instances();
            let next = || instances.life(instances.successor(*life)?);
            let i = instances.life(*life).or_else(next)?;
            Some((i.id(), i.incarnation(), i.slot().cloned()?))
        };
        let mut hit: Vec<_> = users.iter().filter_map(place).collect();
        // A rank's fault is the first: the others' are folded under it.
        hit.sort_by_key(|(who, ..)| who.role != Role::Trainer);
        // All slots first: what one user's fault restarts must not come to another's.
        for (_, _, slot) in &hit {
            match advice {
                Advice::Ignore | Advice::Note => {}
                Advice::Drain if self.s.roster.drain_slot(slot) => {
                    let slot = self.s.roster.nodes().named(slot);
                    let text = format!("{slot} is drained: {shown}");
                    self.event(Severity::Warn, "slot", None, text);
                }
                Advice::Drain => {}
                Advice::Fault => {
                    self.derive();
                    self.s.roster.lose_slot(&self.config, slot);
                }
            }
        }
        let mut first = None;
        for (who, life, _) in hit.into_iter().filter(|_| advice == Advice::Fault) {
            let opened = self.device_failed(who, life, &shown, first);
            first = first.or(opened);
        }
    }

    /// The first rank's verdict takes its peers along, so another user may be another life by now.
    fn device_failed(
        &mut self,
        who: InstanceId,
        life: Incarnation,
        shown: &str,
        first: Option<IncidentId>,
    ) -> Option<IncidentId> {
        let same = |i: &&Instance| i.incarnation() == life;
        let there = self.s.roster.instances().get(who).filter(same);
        let strikes = |i: &Instance| i.has_process() && i.condemned().is_none();
        if !there.is_some_and(strikes) || self.s.outcome().is_some() {
            return None;
        }
        self.fault_of_rule(Verdict::new(who, &RULE, shown).under(first))
    }
}
