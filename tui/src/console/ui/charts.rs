//! Sliding ETTR over the last five minutes and the reward of the last steps.
use super::super::state::State;
use super::plot::Plot;
use super::{WIDE, section};
use crate::format::ratio;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use robust_proto::v1;

/// The ETTR history holds a value a second.
const ETTR_SLOTS: usize = 300;
/// A young job's curve does not begin as one wide dot.
const FEWEST_STEPS: usize = 20;

/// One chart, or two where there is room.
pub fn draw(state: &State, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    if area.width < WIDE {
        return ettr(state, s, area, buf);
    }
    let [left, _, right] = Layout::horizontal([
        Constraint::Percentage(60),
        Constraint::Length(2),
        Constraint::Fill(1),
    ])
    .areas(area);
    ettr(state, s, left, buf);
    reward(state, s, right, buf);
}

fn ettr(state: &State, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    let title = format!(
        "ETTR {} over 5 min, {} overall, goodput {}",
        ratio(s.ettr_sliding),
        ratio(s.ettr),
        ratio(s.goodput)
    );
    let inner = section(state, area, &title, buf);
    let ago = |i: &v1::Incident| (s.now_ms.saturating_sub(i.at_ms) / 1000) as usize;
    let marks: Vec<usize> = s.incidents.iter().map(ago).collect();
    let plot = Plot {
        values: &s.ettr_history,
        slots: ETTR_SLOTS,
        low: 0.0,
        high: 1.0,
        digits: 1,
        ends: ("-5m", "now"),
        marks: &marks,
    };
    plot.draw(state.look, inner, buf);
}

fn reward(state: &State, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    let n = s.reward_history.len();
    let first = (s.step + 1).saturating_sub(n as u64);
    let title = match n {
        0 => "REWARD, no step yet".to_owned(),
        n => format!("REWARD {}, last {n} steps", ratio(s.reward_history[n - 1])),
    };
    let inner = section(state, area, &title, buf);
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
        slots,
        low,
        high,
        digits: 2,
        ends: (&left, &right),
        marks: &[],
    };
    plot.draw(state.look, inner, buf);
}
