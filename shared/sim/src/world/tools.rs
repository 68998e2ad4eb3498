//! Tools that die. An agent worker tries again for a while; then it stores nothing of the turn as a
//! result, and gives the trajectory back.
use super::agents::{AGAIN, Doing};
use super::{Happening, World};
use robust_shared::core::{Input, ReturnedBy, RoleEvent};
use robust_shared::ids::{Incarnation, InstanceId};
use robust_shared::time::Time;
use std::time::Duration;

/// So long a call is tried again.
const TRIES: Duration = Duration::from_millis(600);

impl World {
    /// The tool at a place works at nothing for a time; with none as long as its worker lives.
    pub fn break_tool(&mut self, who: InstanceId, lasts: Option<Duration>) {
        let until = lasts.map_or(Time(u64::MAX / 2), |lasts| self.now + lasts);
        if let Some(p) = self.proc(who) {
            p.tool_broken = until;
        }
    }

    fn tool_is_broken(&self, agent: Incarnation) -> bool {
        let p = self.procs.get(&agent);
        p.is_some_and(|p| p.tool_broken > self.now)
    }

    /// A turn is generated. All but the last call a tool before they are stored.
    pub(super) fn call_tool(&mut self, d: Doing) {
        let Some(work) = self.work(d) else {
            return;
        };
        let calls = work.stored + 1 < self.turns_of(d.trajectory);
        match calls && self.tool_is_broken(d.agent) {
            true => self.after(TRIES, Happening::ToolTried(d)),
            false => self.append(d),
        }
    }

    /// The last try: it works again, or the trajectory is given back.
    pub(super) fn tool_tried(&mut self, d: Doing) {
        if self.work(d).is_none() {
            return;
        }
        if !self.tool_is_broken(d.agent) {
            return self.append(d);
        }
        if !self.is_heard(d.agent) || !self.daemon.up {
            return self.after(AGAIN, Happening::ToolTried(d));
        }
        self.let_go(d.agent, d.trajectory);
        if self.daemon.holder_of(d.trajectory) == Some(d.agent) {
            self.daemon.leases.remove(&d.trajectory);
            let by = match self.dice.chance(200) {
                true => ReturnedBy::Diverged,
                false => ReturnedBy::Worker,
            };
            if by == ReturnedBy::Diverged {
                self.diverged.insert(d.trajectory);
            }
            self.feed(Input::Role(
                d.agent,
                RoleEvent::TrajectoryReturned {
                    trajectory: d.trajectory,
                    reason: "its tool failed".to_owned(),
                    by,
                    lease: 0,
                },
            ));
        }
    }
}
