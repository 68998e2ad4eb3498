//! The slices of a window as rows that add up to it.
use crate::console::table::{Cell, Column, Spec, figures, words};
use crate::console::ui::look::{Look, Tone};
use crate::format::millis_tight;
use ratatui::style::Style;
use robust_proto::v1::TimeWindow;
use robust_shared::ettr::Slice;
use robust_shared::wire::Word as _;

/// What is in no slice of a window.
pub const NOT_COUNTED: &str = "not_counted";
/// Seconds that times in ms may differ by without anything missing.
const ROUNDED: f64 = 0.05;

/// A slice of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// As the daemon calls it, or [`NOT_COUNTED`].
    pub slice: String,
    /// Its time.
    pub seconds: f64,
    /// Of the window, 0 to 1.
    pub share: f64,
    /// The share of all rows above.
    pub before: f64,
}

/// The rows of a window: every slice that there can be, in the order of the ledger, then what was not counted.
pub fn of(window: &TimeWindow) -> Vec<Row> {
    let known = Slice::ALL.map(Slice::name);
    let seconds = |name: &str| {
        let slices = window.slices.iter().filter(|s| s.name == name);
        slices.map(|s| s.seconds).sum::<f64>()
    };
    let mut parts: Vec<(String, f64)> = known
        .iter()
        .map(|name| ((*name).to_owned(), seconds(name)))
        .collect();
    // A newer daemon may tell more apart.
    let others = window.slices.iter();
    let others = others.filter(|s| !known.contains(&s.name.as_str()));
    parts.extend(others.map(|s| (s.name.clone(), s.seconds)));
    let sum: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
    let length = length(window);
    if length - sum > ROUNDED {
        parts.push((NOT_COUNTED.to_owned(), length - sum));
    }
    let whole = length.max(sum).max(1e-9);
    let mut before = 0.0;
    let rows = parts.into_iter().map(|(slice, seconds)| {
        let share = seconds / whole;
        let row = Row {
            slice,
            seconds,
            share,
            before,
        };
        before += share;
        row
    });
    rows.collect()
}

/// Seconds from its begin to its end.
pub fn length(window: &TimeWindow) -> f64 {
    window.to_ms.saturating_sub(window.from_ms) as f64 / 1e3
}

/// The share of one slice, 0 to 1.
pub fn share(rows: &[Row], slice: Slice) -> f64 {
    let row = rows.iter().find(|row| row.slice == slice.name());
    row.map_or(0.0, |row| row.share)
}

/// A slice in words.
pub fn title(slice: &str) -> &str {
    match Slice::known(slice) {
        Some(Slice::WaitsForData) => "trainer waits for data",
        Some(Slice::WaitsForWeights) => "rollouts wait for weights",
        Some(Slice::Between) => "between steps",
        Some(
            Slice::Useful
            | Slice::Detect
            | Slice::Restart
            | Slice::Reconnect
            | Slice::Replayed
            | Slice::Paused
            | Slice::Start,
        ) => slice,
        None if slice == NOT_COUNTED => "not counted",
        None => slice,
    }
}

/// What it is.
pub fn meaning(slice: &str) -> &'static str {
    let Some(known) = Slice::known(slice) else {
        return if slice == NOT_COUNTED {
            "Nobody counted it: the daemon is younger than the window, or of an older build."
        } else {
            "This console is older than the daemon and does not know it."
        };
    };
    match known {
        Slice::Useful => {
            "The trainer computes, beside engines that generate or while they have nothing to do."
        }
        Slice::WaitsForData => {
            "No call to the trainer is under way: its next batch is not complete."
        }
        Slice::WaitsForWeights => "Nobody generates while an engine fetches weights.",
        Slice::Between => {
            "The trainer is in a call without computing (snapshot, publish, reshard), or slots change hands."
        }
        Slice::Detect => {
            "A fault that stops the trainer had struck and was not found yet; it seemed to be work."
        }
        Slice::Restart => "A fault was found, and not all new processes are attached.",
        Slice::Reconnect => "New processes are attached, and useful work does not go on yet.",
        Slice::Replayed => {
            "Work whose result was thrown away: a step or turns that were done again."
        }
        Slice::Paused => "An operator held the job.",
        Slice::Start => "Processes start, and nothing was ever published.",
    }
}

/// Whether incidents are what it is made of.
pub fn comes_of_faults(slice: &str) -> bool {
    matches!(
        Slice::known(slice),
        Some(Slice::Detect | Slice::Restart | Slice::Reconnect | Slice::Replayed)
    )
}

fn tone(slice: &str) -> Tone {
    match Slice::known(slice) {
        Some(Slice::Useful) => Tone::Good,
        Some(Slice::WaitsForData | Slice::WaitsForWeights | Slice::Between) => Tone::Warn,
        Some(_) if comes_of_faults(slice) => Tone::Bad,
        _ => Tone::Plain,
    }
}

/// The table with bars as long as an area of this width has room for.
pub fn spec(width: u16) -> &'static Spec<Row> {
    match width {
        0..=75 => &NARROW,
        76..=115 => &MIDDLE,
        _ => &WIDE,
    }
}

static NARROW: Spec<Row> = Spec {
    columns: &NARROW_COLUMNS,
    name,
    text,
};
static MIDDLE: Spec<Row> = Spec {
    columns: &MIDDLE_COLUMNS,
    name,
    text,
};
static WIDE: Spec<Row> = Spec {
    columns: &WIDE_COLUMNS,
    name,
    text,
};

static NARROW_COLUMNS: [Column<Row>; 4] = columns::<14>();
static MIDDLE_COLUMNS: [Column<Row>; 4] = columns::<32>();
static WIDE_COLUMNS: [Column<Row>; 4] = columns::<70>();

const fn columns<const BAR: usize>() -> [Column<Row>; 4] {
    [
        words("SLICE", 25, 0, |r: &Row, look| {
            (title(&r.slice).to_owned(), look.strong())
        }),
        figures(
            "TIME",
            7,
            0,
            |r, _| (millis_tight(r.seconds * 1e3), Style::new()),
            |r| r.seconds,
        ),
        figures(
            "SHARE",
            6,
            0,
            |r, _| (percent(r.share), Style::new()),
            |r| r.share,
        ),
        words("", 0, 0, bar::<BAR>),
    ]
}

fn name(row: &Row) -> String {
    row.slice.clone()
}

fn text(row: &Row) -> String {
    title(&row.slice).to_owned()
}

fn percent(share: f64) -> String {
    match share {
        share if share <= 0.0 => "-".to_owned(),
        share if share < 0.001 => "<0.1%".to_owned(),
        share => format!("{:.1}%", share * 100.0),
    }
}

/// The row's part of the window, where the rows above end.
fn bar<const BAR: usize>(row: &Row, look: Look) -> Cell {
    let place = |share: f64| (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let (from, to) = (place(row.before), place(row.before + row.share));
    let (from, to) = match row.seconds > 0.0 && from == to {
        // What there is can be seen.
        true => (from.min(BAR - 1), from.min(BAR - 1) + 1),
        false => (from, to),
    };
    let text = " ".repeat(from) + &look.glyph("█", "#").repeat(to - from);
    (text, look.tone(tone(&row.slice)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ThemeName;
    use robust_proto::v1::TimeSlice;

    fn window(length_ms: u64, slices: &[(&str, f64)]) -> TimeWindow {
        let slice = |(name, seconds): &(&str, f64)| TimeSlice {
            name: (*name).to_owned(),
            seconds: *seconds,
        };
        TimeWindow {
            name: "5m".into(),
            from_ms: 1_000,
            to_ms: 1_000 + length_ms,
            slices: slices.iter().map(slice).collect(),
        }
    }

    fn sums(rows: &[Row]) -> (f64, f64) {
        let seconds = rows.iter().map(|r| r.seconds).sum();
        (seconds, rows.iter().map(|r| r.share).sum())
    }

    #[test]
    fn the_rows_of_a_window_add_up_to_it_and_say_what_is_left_over() {
        let rows = of(&window(300_000, &[("useful", 180.0), ("restart", 20.0)]));
        let (seconds, share) = sums(&rows);
        assert!((seconds - 300.0).abs() < 1e-9 && (share - 1.0).abs() < 1e-9);
        let last = rows.last().map(|r| (r.slice.as_str(), r.seconds));
        assert_eq!(last, Some((NOT_COUNTED, 100.0)));
        assert!((share_of(&rows, "useful") - 0.6).abs() < 1e-9);
    }

    fn share_of(rows: &[Row], slice: &str) -> f64 {
        let row = rows.iter().find(|r| r.slice == slice);
        row.map_or(0.0, |r| r.share)
    }

    #[test]
    fn times_that_were_rounded_leave_nothing_over_and_a_slice_of_a_newer_daemon_is_a_row() {
        let rows = of(&window(10_000, &[("useful", 6.0), ("thinks", 4.0004)]));
        assert_eq!(rows.last().map(|r| r.slice.as_str()), Some("thinks"));
        let (_, share) = sums(&rows);
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        assert_eq!(rows.len(), Slice::ALL.len() + 1);
    }

    #[test]
    fn each_bar_begins_where_the_one_above_ends_and_the_shortest_can_be_seen() {
        let look = Look::new(ThemeName::Dark, false, true);
        let slices = [("useful", 50.0), ("waits_for_data", 49.99), ("start", 0.01)];
        let rows = of(&window(100_000, &slices));
        let bars: Vec<String> = rows
            .iter()
            .filter(|r| r.seconds > 0.0)
            .map(|r| bar::<10>(r, look).0)
            .collect();
        assert_eq!(bars, ["#####", "     #####", "         #"]);
    }

    #[test]
    fn an_empty_window_has_rows_without_time() {
        let rows = of(&window(0, &[]));
        assert_eq!(rows.len(), Slice::ALL.len());
        assert_eq!(sums(&rows), (0.0, 0.0));
        assert_eq!(share(&rows, Slice::Useful), 0.0);
    }
}
