//! How far recoveries are: marked on the way, closed when useful work goes on.
use super::{Around, Recover, Scope};
use crate::core::effects::Cx;
use crate::core::output::Severity;
use crate::core::recover::incident::IncidentOutcome;
use crate::ids::{Incarnation, IncidentId, InstanceId};
use crate::time::Time;

impl Recover {
    /// Notes an incarnation that ends with the recoveries that cover its place.
    pub fn sweep(&mut self, id: InstanceId, life: Incarnation) {
        for incident in self.covering(id) {
            let known = self.incidents.get(incident);
            if known.is_some_and(|i| i.incarnation != life)
                && let Some(i) = self.incidents.get_mut(incident)
            {
                i.swept.push(life);
            }
        }
    }

    fn covering(&self, id: InstanceId) -> Vec<IncidentId> {
        let covering = self.recoveries.iter().filter(|r| r.covers(id));
        covering.map(|r| r.incident).collect()
    }

    /// Notes the first instant of a stage in every recovery that covers the instance.
    pub fn mark(&mut self, now: Time, id: InstanceId, name: &str) {
        for incident in self.covering(id) {
            self.mark_one(now, incident, name);
        }
    }

    /// Notes in every recovery of which all processes are started that they are.
    pub fn mark_spawned(&mut self, now: Time, around: &Around<'_>) {
        for recovery in &self.recoveries.to_vec() {
            if around.is_carried_out(recovery) && around.all_covered(recovery, |c| c.spawned) {
                self.mark_one(now, recovery.incident, "spawned");
            }
        }
    }

    fn mark_one(&mut self, now: Time, id: IncidentId, name: &str) {
        let known = self.incidents.get(id);
        if known.is_some_and(|i| i.marks.iter().all(|(n, _)| n != name))
            && let Some(i) = self.incidents.get_mut(id)
        {
            i.marks.push((name.to_owned(), now));
        }
    }

    /// A place is given up: what was to bring it back is over.
    pub fn give_up(&mut self, cx: &mut Cx<'_>, id: InstanceId) {
        let of = |r: &&super::Recovery| r.scope == Scope::Instance && r.who == id;
        let over = self.recoveries.iter().filter(of).map(|r| r.incident);
        for id in over.collect::<Vec<_>>() {
            self.recoveries.end(id);
            if let Some(incident) = self.incidents.get_mut(id) {
                incident.resumed = Some(cx.now);
                incident.outcome = IncidentOutcome::Recovered;
            }
            self.record(cx.out, id);
        }
    }

    /// Whether recoveries are to be looked at ([`Self::advance`]): once for each change.
    pub fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.due)
    }

    /// Notes which recoveries have their processes back, and closes those whose work goes on.
    pub fn advance(&mut self, cx: &mut Cx<'_>, around: &Around<'_>) {
        for recovery in &self.recoveries.to_vec() {
            if !around.is_carried_out(recovery) || !around.all_covered(recovery, |c| c.linked) {
                continue;
            }
            self.mark_one(cx.now, recovery.incident, "attached");
            self.note_attached(cx, recovery.incident, around.work_goes_on(recovery));
        }
    }

    fn note_attached(&mut self, cx: &mut Cx<'_>, id: IncidentId, resumed: bool) {
        let known = self.incidents.get(id);
        if known.is_none_or(|known| !resumed && known.attached.is_some()) {
            return;
        }
        let Some(incident) = self.incidents.get_mut(id) else {
            return;
        };
        incident.attached.get_or_insert(cx.now);
        if !resumed {
            return;
        }
        incident.resumed = Some(cx.now);
        if incident.outcome == IncidentOutcome::Recovering {
            incident.outcome = IncidentOutcome::Recovered;
        }
        let took = incident.total().unwrap_or_default().as_millis();
        let who = incident.who;
        self.recoveries.end(id);
        self.record(cx.out, id);
        let text = format!("{who} is back at work {took} ms after the fault (incident {id})");
        cx.event(Severity::Info, "recovered", Some(who), text);
    }
}
