//! How an instance is, in a character and a colour. No two have the same character, so that the colour alone says nothing.
use crate::console::ui::look::{Look, Tone};
use ratatui::style::Style;
use robust_proto::v1::RoleStatus;
use robust_shared::wire::InstanceState;

/// How an instance is, from the best to the worst: of several in a cell the worst is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// The job is over.
    Done,
    /// As it should be: its phase says more.
    Running,
    /// Not there yet: it starts, or has no weights to serve.
    Starting,
    /// A figure of its is far from those of the others of its role.
    Off,
    /// No slot is free for it.
    Homeless,
    /// Taken out of traffic.
    Quarantined,
    /// Started anew after a fault.
    Restarting,
    /// Taken for broken, and not yet replaced.
    Suspected,
    /// It has no process.
    Failed,
}

impl Health {
    /// From the worst to the best.
    pub const ALL: [Health; 9] = [
        Health::Failed,
        Health::Suspected,
        Health::Restarting,
        Health::Quarantined,
        Health::Homeless,
        Health::Off,
        Health::Starting,
        Health::Running,
        Health::Done,
    ];

    /// By its state; its figures are compared elsewhere.
    pub fn of(r: &RoleStatus) -> Health {
        match r.state() {
            Some(InstanceState::Down) => Health::Failed,
            Some(InstanceState::Suspect) => Health::Suspected,
            Some(InstanceState::Recovering) => Health::Restarting,
            Some(InstanceState::Quarantined) => Health::Quarantined,
            Some(InstanceState::Done) => Health::Done,
            // An operator's hand is worth more than what it waits for, or that it runs.
            _ if r.quarantined => Health::Quarantined,
            Some(InstanceState::Waiting) => Health::Homeless,
            Some(InstanceState::Running) => Health::Running,
            // None: what a later build may say.
            Some(InstanceState::Starting | InstanceState::Stale) | None => Health::Starting,
        }
    }

    /// Whether it is worth a line in the list of those that stand out.
    pub fn stands_out(self) -> bool {
        self >= Health::Off
    }

    /// In a word or two.
    pub fn word(self) -> &'static str {
        match self {
            Health::Done => "done",
            Health::Running => "running",
            Health::Starting => "starting",
            Health::Off => "far off",
            Health::Homeless => "no slot",
            Health::Quarantined => "quarantined",
            Health::Restarting => "restarting",
            Health::Suspected => "suspected",
            Health::Failed => "failed",
        }
    }

    /// The same where there is no room for it.
    pub fn short(self) -> &'static str {
        match self {
            Health::Starting => "start",
            Health::Off => "off",
            Health::Running => "run",
            Health::Quarantined => "quar",
            Health::Restarting => "restart",
            Health::Suspected => "susp",
            Health::Failed => "fail",
            Health::Done | Health::Homeless => self.word(),
        }
    }

    /// The character and colour of one that is in this phase.
    pub fn sign(self, phase: &str, look: Look) -> (char, Style) {
        let (fine, plain, tone) = match self {
            Health::Running => return running(phase, look),
            Health::Done => ('✔', '+', Tone::Plain),
            Health::Starting => ('◌', ':', Tone::Warn),
            Health::Off => ('▲', '!', Tone::Warn),
            Health::Homeless => ('○', '_', Tone::Warn),
            Health::Quarantined => ('⊘', '%', Tone::Warn),
            Health::Restarting => ('◐', '~', Tone::Warn),
            Health::Suspected => ('◍', '?', Tone::Bad),
            Health::Failed => ('✖', 'X', Tone::Bad),
        };
        (if look.ascii { plain } else { fine }, look.tone(tone))
    }
}

/// The letter of a phase, as on the timeline. One that would be taken for something else, or seen as nothing, is that of
/// somebody who runs.
fn running(phase: &str, look: Look) -> (char, Style) {
    match look.phase(phase) {
        ('?' | '!' | '~' | ' ', style) => (look.sign("running"), style),
        letter => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ThemeName;
    use robust_shared::phase::Phase;
    use std::collections::BTreeSet;

    fn of(state: &str, quarantined: bool) -> Health {
        Health::of(&RoleStatus {
            state: state.into(),
            quarantined,
            ..Default::default()
        })
    }

    #[test]
    fn a_state_is_as_bad_as_it_is_and_an_operators_hand_shows() {
        assert_eq!(of("running", false), Health::Running);
        assert_eq!(of("running", true), Health::Quarantined);
        assert_eq!(of("stale", false), Health::Starting);
        assert_eq!(of("down", true), Health::Failed);
        assert_eq!(of("waiting", false), Health::Homeless);
        assert!(Health::ALL.is_sorted_by(|a, b| a > b));
        assert!(of("suspect", false).stands_out() && !of("starting", false).stands_out());
    }

    #[test]
    fn every_health_has_a_character_of_its_own_that_is_no_phases() {
        for ascii in [true, false] {
            let look = Look::new(ThemeName::Dark, true, ascii);
            let phases = Phase::ALL.iter().map(|phase| running(phase.name(), look).0);
            let letters: BTreeSet<char> = phases.collect();
            let signs = Health::ALL.into_iter().filter(|h| *h != Health::Running);
            let signs: Vec<char> = signs.map(|h| h.sign("", look).0).collect();
            let distinct: BTreeSet<char> = signs.iter().copied().collect();
            assert_eq!(distinct.len(), signs.len());
            assert!(distinct.is_disjoint(&letters), "{signs:?} {letters:?}");
        }
    }
}
