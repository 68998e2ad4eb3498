//! Whether the index says what a full scan says.
use crate::core::Core;
use crate::core::timers::TimerKey;

impl Core {
    /// Compares everything derived with what a full scan derives. For tests and searches: its cost
    /// grows with the job.
    pub fn check(&self) -> Result<(), String> {
        if !self.s.roster.untouched() {
            return Err("something was touched and not derived anew".to_owned());
        }
        self.s.work.check()?;
        let mut fresh = self.clone();
        fresh.s.roster.forget_index();
        fresh.s.work.forget_offers();
        fresh.s.weights.forget_told();
        fresh.derive();
        let (known, scanned) = (self.s.roster.index(), fresh.s.roster.index());
        if known != scanned {
            return Err(difference(known, scanned));
        }
        if !fresh.s.work.has_same_offers(&self.s.work) {
            return Err(difference(&self.s.work, &fresh.s.work));
        }
        if !fresh.s.weights.has_same_sets(&self.s.weights) {
            return Err(difference(&self.s.weights, &fresh.s.weights));
        }
        for node in self.s.roster.nodes().ids() {
            let timer = self.timers.get(TimerKey::Node(node));
            if let Some(due) = self.s.roster.node_deadline(&self.config, node)
                && timer.is_none_or(|at| at > due)
            {
                return Err(format!(
                    "{node}'s deadline {due} has its timer at {timer:?}"
                ));
            }
        }
        for i in self.s.roster.instances().iter() {
            let timer = self.timers.get(TimerKey::Instance(i.id()));
            if let Some(due) = self.s.sight(self.now, &self.config).own_deadline(i)
                && timer.is_none_or(|at| at > due)
            {
                return Err(format!(
                    "{}'s deadline {due} has its timer at {timer:?}",
                    i.id()
                ));
            }
        }
        Ok(())
    }
}

/// The part in which two values differ.
pub fn difference(known: &impl std::fmt::Debug, scanned: &impl std::fmt::Debug) -> String {
    let (known, scanned) = (format!("{known:?}"), format!("{scanned:?}"));
    let same = known
        .bytes()
        .zip(scanned.bytes())
        .take_while(|(a, b)| a == b);
    let from = same.count().saturating_sub(200);
    let part = |text: &str| text.chars().skip(from).take(400).collect::<String>();
    format!(
        "known ..{}.., a scan says ..{}..",
        part(&known),
        part(&scanned)
    )
}
