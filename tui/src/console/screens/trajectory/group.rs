//! The trajectories of the same prompt, side by side.
use crate::console::table::{Cell, Column, Spec, figures, words};
use crate::console::ui::look::Look;
use crate::format::count;
use crate::trajectories::name;
use ratatui::style::Style;
use robust_proto::v1::Trajectory;
use robust_shared::wire::{TrajectoryState, WitnessState, Word as _};

/// In the order of their numbers.
pub static SPEC: Spec<Trajectory> = Spec {
    columns: &COLUMNS,
    name,
    text: |t| format!("{} {} {}", name(t), state(t), versions(t)),
};

static COLUMNS: [Column<Trajectory>; 7] = [
    words("TRAJECTORY", 14, 0, |t, look| {
        let sign = sign(look, state(t));
        (format!("{sign} {}", name(t)), look.strong())
    }),
    figures(
        "REWARD",
        6,
        0,
        |t, _| plain(t.reward.map_or_else(dash, |r| format!("{r:.2}"))),
        |t| t.reward.unwrap_or(f64::NEG_INFINITY),
    ),
    figures(
        "TOKENS",
        6,
        0,
        |t, _| plain(count(t.tokens as f64)),
        |t| t.tokens as f64,
    ),
    figures(
        "TURNS",
        5,
        3,
        |t, _| plain(t.turn_count.to_string()),
        |t| f64::from(t.turn_count),
    ),
    words("WEIGHTS", 11, 1, |t, _| plain(versions(t))),
    words("ATTEMPT", 7, 1, |t, _| plain(attempt(t))),
    words("STATE", 10, 2, |t, look| {
        let state = state(t);
        let tone = look.tone_of(as_known(state));
        (look.fit(&state.replace('_', " "), 10), look.tone(tone))
    }),
];

fn plain(text: String) -> Cell {
    (text, Style::new())
}

fn dash() -> String {
    "-".to_owned()
}

/// What it is, by all records that name it where they are known.
pub fn state(t: &Trajectory) -> &str {
    match &t.witness {
        Some(witness) => &witness.state,
        None => &t.state,
    }
}

/// Whether more of it may be generated.
pub fn grows(t: &Trajectory) -> bool {
    match WitnessState::known(state(t)) {
        Some(WitnessState::Generating | WitnessState::Waiting | WitnessState::NotBegun) => true,
        Some(_) => false,
        None => TrajectoryState::known(state(t)) == Some(TrajectoryState::Running),
    }
}

/// The sign beside that word.
pub fn sign(look: Look, state: &str) -> char {
    look.sign(as_known(state))
}

/// The word of other screens for what is as good.
fn as_known(state: &str) -> &str {
    match WitnessState::known(state) {
        Some(WitnessState::Generating) => "running",
        Some(WitnessState::Finished | WitnessState::Committing | WitnessState::Consumed) => "done",
        Some(WitnessState::SetAside) => "warn",
        Some(WitnessState::NotBegun) => "waiting",
        Some(WitnessState::Waiting) | None => state,
    }
}

/// From the oldest weights that generated any of it to the newest.
fn versions(t: &Trajectory) -> String {
    let newest = t.witness.as_ref().map_or(0, |w| w.newest_version);
    match t.oldest_version {
        _ if t.tokens == 0 => dash(),
        oldest if newest > oldest => format!("v{oldest}-v{newest}"),
        oldest => format!("v{oldest}"),
    }
}

/// The attempt that brought it to its end, or the one under way, and of how many.
fn attempt(t: &Trajectory) -> String {
    let witness = t.witness.as_ref();
    match witness.map(|w| (w.attempt, w.attempts)) {
        Some((Some(attempt), Some(of))) => format!("{attempt} of {of}"),
        Some((None, Some(of))) => of.to_string(),
        _ => dash(),
    }
}
