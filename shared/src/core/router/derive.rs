//! What follows from who is where (`core/roster`): whoever changed something left a mark, what follows from
//! it is derived anew, and told to the machines that it concerns, until quiet.
//!
//! ```text
//!  leases, requests, weights ──► touched ──► roster: refresh ──► news ──► weights, work, recover
//!                                   ▲                                         │
//!                                   └── whom the weights changed by it ───────┘
//! ```
use crate::core::Core;
use crate::core::config::CoreConfig;
use crate::core::effects::Cx;
use crate::core::roster::index::{Globals, Index, Others};
use crate::core::roster::nodes::Placement;
use crate::core::roster::{News, Roster};
use crate::core::state::State;
use crate::core::timers::{TimerKey, Timers};
use crate::ids::{InstanceId, Role};
use crate::time::Time;

impl Core {
    /// Who is where, and what it is given with whatever it is to take in.
    pub(in crate::core) fn roster(&mut self) -> (&mut Roster, Cx<'_>) {
        let cx = Cx {
            now: self.now,
            config: &self.config,
            out: &mut self.out,
        };
        (&mut self.s.roster, cx)
    }

    /// Derives anew what follows from everything that was touched, and tells whom it concerns.
    pub(in crate::core) fn derive(&mut self) {
        let mut deriving = Deriving {
            now: self.now,
            config: &self.config,
            s: &mut self.s,
            timers: &mut self.timers,
        };
        deriving.run();
    }
}

impl State {
    /// Whether everything is derived from who is where; what is not touches nobody.
    fn is_derived(&self) -> bool {
        self.roster.untouched() && self.weights.is_heard()
    }

    /// What was derived, which must be up to date.
    pub(in crate::core) fn index_now(&self) -> &Index {
        debug_assert!(self.is_derived(), "the index is behind");
        self.roster.index()
    }

    /// What decides where an instance is to run, as things were when that was last derived.
    pub(in crate::core) fn placement<'a>(
        &'a self,
        now: Time,
        config: &'a CoreConfig,
    ) -> Placement<'a> {
        self.roster.placement(now, config, &self.weights)
    }

    fn globals(&self) -> Globals {
        let gang = &self.gang;
        Globals {
            published: self.weights.published(),
            serves: gang.serves(),
            stage: Some(gang.stage()),
            context: gang.context(),
            wanted: gang.is_called() || self.weights.wait_for_ranks(),
        }
    }
}

/// All that it takes.
struct Deriving<'a> {
    now: Time,
    config: &'a CoreConfig,
    s: &'a mut State,
    timers: &'a mut Timers,
}

impl Deriving<'_> {
    fn run(&mut self) {
        self.touch_by_others();
        let globals = self.s.globals();
        if self.s.roster.is_derived(globals) {
            return;
        }
        let before = self.s.roster.index().globals();
        if self.s.roster.notice(globals) {
            self.s.weights.look_again();
            self.s.recover.look_again();
        }
        self.s.roster.survey(self.config);
        let mut again = self.s.roster.lend_rearm();
        while let Some(id) = self.next_touched() {
            self.refresh(id);
            again.push(id);
        }
        let globals = self.s.globals();
        self.s.roster.settle(globals, before, &mut again);
        for id in again.drain(..) {
            self.arm(id);
        }
        self.s.roster.return_rearm(again);
    }

    /// Leases and requests that changed touch whoever holds or serves them, weights whoever has them.
    fn touch_by_others(&mut self) {
        let State {
            roster,
            weights,
            work,
            ..
        } = &mut *self.s;
        while let Some(engine) = weights.next_changed() {
            roster.touch(engine);
        }
        while let Some(life) = work.next_changed() {
            if let Some(id) = roster.instances().life(life).map(|i| i.id()) {
                roster.touch(id);
            }
        }
    }

    /// One of those touched. What the weights make of what they are told meanwhile may concern another one.
    fn next_touched(&mut self) -> Option<InstanceId> {
        let touched = self.s.roster.next_touched();
        touched.or_else(|| self.s.weights.next_changed())
    }

    fn refresh(&mut self, id: InstanceId) {
        let State {
            roster,
            gang,
            weights,
            work,
            recover,
            ..
        } = &mut *self.s;
        if roster.instances().get(id).is_none() {
            // One fewer to come back, be nothing else known of it.
            recover.look_again();
            if id.role == Role::Trainer {
                weights.rank_is_gone(self.config, id);
            }
        }
        let others = Others {
            config: self.config,
            gang,
            weights,
            work,
        };
        if let Some(news) = roster.refresh(id, others) {
            self.tell(&news);
        }
    }

    /// Tells the other machines who is there, and in what state.
    fn tell(&mut self, news: &News) {
        let News { id, old, new, .. } = news;
        if news.concerns_recoveries() {
            self.s.recover.look_again();
        }
        self.offer(news);
        let (weights, config) = (&mut self.s.weights, self.config);
        match id.role {
            Role::Trainer => {
                if news.is_there && old.incarnation != new.incarnation {
                    weights.tell_rank(config, *id, new.incarnation);
                }
                if old.sound != new.sound {
                    weights.look_again();
                }
            }
            Role::Hybrid | Role::Rollout => {
                if old.peer != new.peer {
                    weights.tell(config, *id, new.peer.unwrap_or_default());
                }
            }
            Role::Agent => {}
        }
    }

    /// Tells the work which incarnation takes more of it.
    fn offer(&mut self, news: &News) {
        let News { id, old, new, .. } = news;
        let same = old.incarnation == new.incarnation;
        if same && old.takes == new.takes {
            return;
        }
        if !same {
            self.s.work.offer(*id, old.incarnation, None);
        }
        self.s.work.offer(*id, new.incarnation, new.takes);
    }

    /// Sets the timer of an instance, by what may become due for it.
    fn arm(&mut self, id: InstanceId) {
        let sight = self.s.sight(self.now, self.config);
        let there = sight.instances.get(id);
        let due = there.and_then(|i| sight.deadline(i));
        self.timers.arm(TimerKey::Instance(id), due, self.now);
    }
}
