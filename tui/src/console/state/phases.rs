//! Whether the daemon tells phases as they end.
//!
//! With many instances phases are most of what there is to tell: they come while they are shown or
//! recorded. What ended meanwhile comes first then, as far back as the daemon has it.
use crate::console::event::Action;

/// They are asked for again so long after they ended.
const AGAIN_MS: u64 = 1_000;

/// The stream of phases.
#[derive(Debug)]
pub struct Phases {
    /// They are recorded, whatever is shown.
    records: bool,
    /// The connection over which they are told.
    over: Option<u64>,
    /// Unix ms; not asked for before.
    from: u64,
}

impl Phases {
    /// Nothing is told yet.
    pub fn new(records: bool) -> Phases {
        let (over, from) = (None, 0);
        Phases {
            records,
            over,
            from,
        }
    }

    /// They ended. Asked for again by and by, where there is any hope.
    pub fn ended(&mut self, now: u64, never: bool) {
        if !never {
            self.over = None;
            self.from = now + AGAIN_MS;
        }
    }

    /// What is to be done about them over this connection, if anything.
    pub fn wanted(&mut self, now: u64, shown: bool, link: u64, after_ms: u64) -> Option<Action> {
        let due = now >= self.from;
        let over = (due && (shown || self.records)).then_some(link);
        if std::mem::replace(&mut self.over, over) == over {
            return None;
        }
        Some(match over {
            Some(link) => Action::FollowPhases { link, after_ms },
            None => Action::LeavePhases,
        })
    }
}
