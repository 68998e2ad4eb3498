//! What is asked of an instance.
use super::{Condemned, Health, Instance, Life, Restarted};
use crate::core::gang::context::Turn;
use crate::core::input::Sample;
use crate::core::ops::armed::Armed;
use crate::core::recover::budget::Strikes;
use crate::core::roster::nodes::SlotRef;
use crate::ids::{Incarnation, InstanceId, Step};
use crate::phase::Phase;
use crate::time::Time;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

impl Instance {
    /// Its place.
    pub fn id(&self) -> InstanceId {
        self.place.id
    }

    /// The present incarnation's fencing number; 0: there is none.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Where it is in its life.
    pub fn life(&self) -> Life {
        self.life
    }

    /// The slot it occupies.
    pub fn slot(&self) -> Option<&SlotRef> {
        self.slot.as_ref()
    }

    /// It gets nothing new, and its place is gone when it has nothing left to do.
    pub fn retiring(&self) -> bool {
        self.retiring
    }

    /// The incarnation before, and its slot.
    pub fn before(&self) -> Option<&(Incarnation, SlotRef)> {
        self.before.as_ref()
    }

    /// Its process, or 0.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it is doing.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The step it works on.
    pub fn phase_step(&self) -> Step {
        self.phase_step
    }

    /// Since when.
    pub fn phase_since(&self) -> Time {
        self.phase_since
    }

    /// The last sample.
    pub fn sample(&self) -> &Sample {
        &self.sample
    }

    /// When it came.
    pub fn sampled_at(&self) -> Time {
        self.sampled_at
    }

    /// When it was seen busy last.
    pub fn active_at(&self) -> Time {
        self.active_at
    }

    /// When it used any processor time last.
    pub fn moved_at(&self) -> Time {
        self.moved_at
    }

    /// When its token count grew last, or its load began.
    pub fn tokens_at(&self) -> Time {
        self.tokens_at
    }

    /// Tokens generated a second.
    pub fn tokens_per_s(&self) -> f64 {
        self.tokens_per_s
    }

    /// Cores used.
    pub fn cpu(&self) -> f64 {
        self.cpu
    }

    /// Tokens of its earlier lives.
    pub fn tokens_before(&self) -> u64 {
        self.tokens_before
    }

    /// Tokens of all its lives.
    pub fn tokens_total(&self) -> u64 {
        self.tokens_before + self.sample.tokens_total
    }

    /// Failures of its tools, in all its lives.
    pub fn tool_failures(&self) -> u64 {
        self.tool_failures_before + self.sample.tool_failures
    }

    /// Callers that it turned away, in all its lives.
    pub fn callers_refused(&self) -> u64 {
        self.callers_refused_before + self.sample.callers_refused
    }

    /// Restarts since the job began.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Times its process was replaced without a fault.
    pub fn replaced(&self) -> u32 {
        self.replaced
    }

    /// Why its last lives ended, oldest first.
    pub fn restarted(&self) -> &VecDeque<Restarted> {
        &self.restarted
    }

    /// Failures in a row without useful work between them.
    pub fn strikes(&self) -> &Strikes {
        &self.strikes
    }

    /// When anything was heard or seen of it last.
    pub fn last_sign(&self) -> Time {
        self.last_sign
    }

    /// Whether an operator's fault struck this life.
    pub fn drilled(&self) -> bool {
        self.drilled
    }

    /// When an injected fault struck this life.
    pub fn struck(&self) -> Option<Time> {
        self.struck
    }

    /// Injected faults that wait for it.
    pub fn armed(&self) -> &[Armed] {
        &self.armed
    }

    /// Of an engine: it is being probed until then, and gets no traffic.
    pub fn suspect(&self) -> Option<Time> {
        self.engine().and_then(|e| e.suspect)
    }

    /// Of an engine: what its probes said.
    pub fn health(&self) -> Health {
        self.engine().map_or_else(Health::default, |e| e.health)
    }

    /// Of an engine: an operator took it out.
    pub fn quarantined(&self) -> bool {
        self.engine().is_some_and(|e| e.quarantined)
    }

    /// Of a rank: time in phases without exchange, in the step under way.
    pub fn alone(&self) -> Duration {
        self.rank().map_or(Duration::ZERO, |r| r.alone)
    }

    /// Whether it was said that its phase takes too long.
    pub fn overrun(&self) -> bool {
        self.overrun
    }

    /// Pullers' reports that its chunks are corrupt.
    #[cfg(test)]
    pub fn corrupt_reports(&self) -> u32 {
        self.corrupt_reports
    }

    /// Sources whose chunks it found corrupt, and nobody else did.
    pub fn corrupt_sources(&self) -> Option<&BTreeSet<Incarnation>> {
        self.engine().map(|e| &e.corrupt_sources)
    }

    /// A verdict fell and its kill is due.
    pub fn condemned(&self) -> Option<Condemned> {
        self.condemned
    }

    /// Of a hybrid engine: whether it has its slot.
    pub fn turn(&self) -> Turn {
        self.engine().map_or_else(Turn::default, |e| e.turn)
    }

    /// Of a hybrid engine: an earlier incarnation that was to end while it had its slot, and until when
    /// that is waited for.
    pub fn leaving(&self) -> Option<(Incarnation, Time)> {
        self.engine().and_then(|e| e.leaving)
    }
}
