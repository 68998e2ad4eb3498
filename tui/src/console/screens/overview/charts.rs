//! Sliding ETTR and goodput and the throughput over the last five minutes, the reward of the last
//! steps.
use crate::console::flow::{SECONDS, tokens_per_s};
use crate::console::state::Sight;
use crate::console::ui::plot::Plot;
use crate::console::ui::{WIDE, section, split};
use crate::format::{count, ratio};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use robust_proto::v1;

/// A young job's curve does not begin as one wide dot.
const FEWEST_STEPS: usize = 20;
/// From this width on three charts stand side by side.
const WIDEST: u16 = 160;
/// From this height on two of them stand one above the other.
const HIGH: u16 = 10;

/// As many charts as there is room for: ETTR, then reward, then throughput.
pub fn draw(sight: &Sight, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    if area.width < WIDE {
        return ettr(sight, s, area, buf);
    }
    let part = |n| Constraint::Fill(n);
    let gap = Constraint::Length(2);
    if area.width < WIDEST {
        let [left, _, right] = Layout::horizontal([part(3), gap, part(2)]).areas(area);
        ettr(sight, s, left, buf);
        if right.height < HIGH {
            return reward(sight, s, right, buf);
        }
        let (above, below) = split(right, right.height / 2);
        flow(sight, s, above, buf);
        return reward(sight, s, below, buf);
    }
    let parts = [part(4), gap, part(3), gap, part(3)];
    let [left, _, middle, _, right] = Layout::horizontal(parts).areas(area);
    ettr(sight, s, left, buf);
    flow(sight, s, middle, buf);
    reward(sight, s, right, buf);
}

/// Seconds since each fault was found.
fn faults(s: &v1::Status) -> Vec<usize> {
    let ago = |i: &v1::Incident| (s.now_ms.saturating_sub(i.at_ms) / 1000) as usize;
    s.incidents.iter().map(ago).collect()
}

fn ettr(sight: &Sight, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    // An older daemon, or its recording, says nothing of the last minutes.
    let useful = match s.goodput_history.is_empty() {
        true => ratio(s.goodput),
        false => format!("{}, {}", ratio(s.goodput_sliding), ratio(s.goodput)),
    };
    let dotted = !s.goodput_history.is_empty() && s.goodput_history != s.ettr_history;
    let title = format!(
        "ETTR {} over 5 min, {} overall; goodput {useful}{}",
        ratio(s.ettr_sliding),
        ratio(s.ettr),
        if dotted { " (dotted)" } else { "" }
    );
    let inner = section(sight.look, area, &title, buf);
    let plot = Plot {
        values: &s.ettr_history,
        dotted: &s.goodput_history,
        slots: SECONDS,
        low: 0.0,
        high: 1.0,
        digits: 1,
        ends: ("-5m", "now"),
        marks: &faults(s),
        cursor: None,
    };
    plot.draw(sight.look, inner, buf);
}

/// What this console saw since it was opened.
fn flow(sight: &Sight, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    let steps = match s.step_seconds > 0.0 {
        true => format!(", {:.1} steps/min", 60.0 / s.step_seconds),
        false => String::new(),
    };
    let title = format!("THROUGHPUT {} tokens/s{steps}", count(tokens_per_s(s)));
    let inner = section(sight.look, area, &title, buf);
    let values = sight.job.flow().values();
    let seen = values.iter().copied().filter(|v| v.is_finite());
    let high = round_up(seen.fold(1.0, f64::max));
    let plot = Plot {
        values: &values,
        dotted: &[],
        slots: SECONDS,
        low: 0.0,
        high,
        digits: 0,
        ends: ("-5m", "now"),
        marks: &faults(s),
        cursor: None,
    };
    plot.draw(sight.look, inner, buf);
}

/// The next of 1, 2, 5, 10, 20, ...: the axis keeps still while the best value creeps up.
fn round_up(value: f64) -> f64 {
    let unit = 10_f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|n| n * unit);
    let found = steps.into_iter().find(|s| *s >= value);
    found.unwrap_or(10.0 * unit)
}

fn reward(sight: &Sight, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    let n = s.reward_history.len();
    let first = (s.step + 1).saturating_sub(n as u64);
    let title = match n {
        0 => "REWARD, no step yet".to_owned(),
        n => format!("REWARD {}, last {n} steps", ratio(s.reward_history[n - 1])),
    };
    let inner = section(sight.look, area, &title, buf);
    let finite = s.reward_history.iter().copied().filter(|v| v.is_finite());
    let (low, high) = finite.fold((0.0_f64, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
    // Tenths keep the axis still while the best value creeps up.
    let high = ((high * 10.0).ceil() / 10.0).max(low + 0.1);
    let slots = n.max(FEWEST_STEPS);
    let (left, right) = if n < slots {
        (String::new(), format!("step {}", s.step))
    } else {
        (format!("step {first}"), s.step.to_string())
    };
    let plot = Plot {
        values: &s.reward_history,
        dotted: &[],
        slots,
        low,
        high,
        digits: 2,
        ends: (&left, &right),
        marks: &[],
        cursor: None,
    };
    plot.draw(sight.look, inner, buf);
}
