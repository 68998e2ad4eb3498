//! A takeover: a controller whose disk has all that counts goes on with the job.
use super::super::World;
use super::super::daemon::Daemon;
use super::Parts;
use super::log::Stored;
use super::term::Step;
use robust_shared::core::Core;
use std::mem::swap;

impl World {
    /// It goes on with the job, as a restarted controller does, on the stage from now on. The one that was there before and
    /// does not know it yet is parked.
    pub(super) fn serve(&mut self, c: usize) {
        let k = &self.ha.all[c];
        if k.term.as_ref().is_none_or(|term| term.step != Step::Starts) {
            return;
        }
        let created = k.term.as_ref().map_or(0, |term| term.created);
        let (entries, stored) = k.disk.contents();
        let before = self.ha.stage;
        // One that stood still while it started, and was replaced meanwhile, does not know that.
        let is_deposed = !self.ha.etcd.is_place(created);
        if is_deposed && before == c {
            return self.begins_anew(c);
        }
        if is_deposed {
            self.park(c, true);
            self.sit(c);
        } else {
            self.check_takeover(c, &entries, &stored);
            if before != c && self.is_serving(before) {
                self.park(before, false);
            }
            self.daemon_forgets();
            self.machines.forget_orders();
            self.ha.takeovers += 1;
            (self.ha.stage, self.ha.seat, self.machines.seat) = (c, c, c);
        }
        let Stored {
            turns,
            oldest,
            over,
        } = stored;
        (self.turns, self.oldest, self.stored) = (turns, oldest, over);
        self.ha.lives += 1;
        self.daemon = Daemon::restored(self.ha.lives, self.now, entries);
        self.daemon.first_ticket = self.number();
        if let Some(term) = self.term(c) {
            term.step = Step::Serves;
            let epoch = term.epoch;
            self.ha.all[c].led = epoch;
        }
        self.go_on();
        self.sit_back();
    }

    pub(super) fn is_serving(&self, c: usize) -> bool {
        let term = self.ha.all.get(c).and_then(|k| k.term.as_ref());
        term.is_some_and(|term| term.step == Step::Serves)
    }

    /// Parks a controller beside the stage: with what is there now, or with nothing yet.
    fn park(&mut self, c: usize, anew: bool) {
        let mut checker = self.checker.clone();
        checker.is_read = false;
        let mut parts = Parts {
            core: Core::new(self.config.clone()),
            daemon: Daemon::new(),
            checker,
            turns: Default::default(),
            oldest: Default::default(),
            stored: Default::default(),
            asked: Default::default(),
            task: None,
            pullers: Default::default(),
        };
        if !anew {
            swap(&mut self.core, &mut parts.core);
            swap(&mut self.daemon, &mut parts.daemon);
            swap(&mut self.turns, &mut parts.turns);
            swap(&mut self.oldest, &mut parts.oldest);
            swap(&mut self.stored, &mut parts.stored);
        }
        self.ha.parked.insert(c, Box::new(parts));
    }
}
