//! What is stored: checkpoints on disk, and trajectories that no step has consumed yet.
use super::super::screen::TableId;
use super::super::state::State;
use super::super::stored::{CheckpointRow, Stored, trajectory_name};
use super::super::table::{Cell, Column, Spec, figures, words};
use super::{Drawn, grid, put, section, split, wrapped};
use crate::format::{bar, bytes, clock, count, time_of_day};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use robust_proto::v1::{Status, Trajectory};

/// From this width on the two lists stand side by side.
const BESIDE: u16 = 140;

/// A disk that is fuller is worth a look.
const NEARLY_FULL: f64 = 0.9;

/// Checkpoints, newest first.
pub static CHECKPOINTS: Spec<CheckpointRow> = Spec {
    columns: &CKPT_COLUMNS,
    name: |c| c.step.to_string(),
    text: |c| {
        let pinned = if c.pinned { "pinned" } else { "" };
        format!("{} {} {pinned}", c.step, c.state)
    },
};

static CKPT_COLUMNS: [Column<CheckpointRow>; 7] = [
    figures(
        "STEP",
        8,
        0,
        |c, look| (c.step.to_string(), look.strong()),
        |c| c.step as f64,
    ),
    figures(
        "BYTES",
        9,
        1,
        |c, _| plain(c.bytes.map_or_else(dash, bytes)),
        |c| c.bytes.unwrap_or(0) as f64,
    ),
    figures(
        "RANKS",
        5,
        3,
        |c, _| plain(c.ranks.to_string()),
        |c| c.ranks as f64,
    ),
    figures(
        "REWARD",
        7,
        2,
        |c, _| plain(c.reward.map_or_else(dash, |r| format!("{r:.3}"))),
        |c| c.reward.unwrap_or(f64::NEG_INFINITY),
    ),
    words("WHEN", 12, 2, |c, _| {
        plain(c.at_ms.map_or_else(dash, time_of_day))
    }),
    words("PINNED", 6, 1, |c, _| {
        plain(if c.pinned {
            "pinned".to_owned()
        } else {
            dash()
        })
    }),
    words("STATE", 0, 0, |c, look| {
        let word = if c.bytes.is_some() {
            "complete"
        } else {
            "failed"
        };
        (
            format!("{} {}", look.sign(word), c.state),
            look.tone(look.tone_of(word)),
        )
    }),
];

/// Trajectories, oldest first.
pub static TRAJECTORIES: Spec<Trajectory> = Spec {
    columns: &TRAJ_COLUMNS,
    name: trajectory_name,
    text: |t| format!("{} {} v{}", trajectory_name(t), t.state, t.oldest_version),
};

static TRAJ_COLUMNS: [Column<Trajectory>; 6] = [
    words("TRAJECTORY", 14, 0, |t, look| {
        (trajectory_name(t), look.strong())
    }),
    words("STATE", 10, 0, |t, look| {
        let word = if t.state == "finished" {
            "done"
        } else {
            &t.state
        };
        (
            format!("{} {}", look.sign(word), t.state),
            look.tone(look.tone_of(word)),
        )
    }),
    figures(
        "TURNS",
        5,
        1,
        |t, _| plain(t.turn_count.to_string()),
        |t| f64::from(t.turn_count),
    ),
    figures(
        "TOKENS",
        7,
        0,
        |t, _| plain(count(t.tokens as f64)),
        |t| t.tokens as f64,
    ),
    figures(
        "REWARD",
        7,
        1,
        |t, _| plain(t.reward.map_or_else(dash, |r| format!("{r:.2}"))),
        |t| t.reward.unwrap_or(f64::NEG_INFINITY),
    ),
    figures(
        "OLDEST",
        7,
        2,
        |t, _| plain(format!("v{}", t.oldest_version)),
        |t| t.oldest_version as f64,
    ),
];

fn plain(text: String) -> Cell {
    (text, Style::new())
}

fn dash() -> String {
    "-".to_owned()
}

/// Where else the last step is safe, and what was passed over; a line each where there is one.
fn summary(state: &State, s: &Status) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |word: &str, text: String| {
        let style = state.look.tone(state.look.tone_of(word));
        let text = format!(" {} {text}", state.look.sign(word));
        lines.push(Line::styled(state.look.fit(&text, 190), style));
    };
    if s.disk_total_bytes > 0 {
        let (free, total) = (s.disk_free_bytes, s.disk_total_bytes);
        let full = 1.0 - free as f64 / total as f64;
        let gauge = bar(full, 20, state.look.ascii);
        let word = if full > NEARLY_FULL { "warn" } else { "done" };
        let (free, total) = (bytes(free), bytes(total));
        say(word, format!("disk {gauge} {free} of {total} free"));
    }
    if let Some(r) = &s.replicas {
        let spread = match r.spread.as_str() {
            "" => String::new(),
            spread => format!(", on other {spread}"),
        };
        let waits = match r.waiting.as_str() {
            "" => String::new(),
            what => format!("; a step waits for {what}"),
        };
        let word = if r.state == "safe" { "done" } else { "waiting" };
        let (step, copies) = (r.step, &r.state);
        say(
            word,
            format!("copies of step {step} in memory: {copies}{spread}{waits}"),
        );
    }
    if let Some(r) = &s.remote {
        let step = r.step.map_or_else(dash, |step| format!("step {step}"));
        let (url, sent) = (&r.url, bytes(r.sent_bytes));
        match r.failing.as_str() {
            "" => say("done", format!("{url}: {step}, {sent} sent")),
            why => say(
                "failed",
                format!("{url}: {step}, {} failed: {why}", r.failed),
            ),
        }
    }
    let remote = s.remote.as_ref().map_or(0, |r| r.skipped);
    if s.checkpoints_skipped + remote + s.trajectories_stale > 0 {
        let (disk, stale) = (s.checkpoints_skipped, s.trajectories_stale);
        let text = format!(
            "passed over: {disk} checkpoints (disk busy), {remote} uploads; \
             {stale} trajectories were too stale"
        );
        say("warn", text);
    }
    let failures: u64 = s.roles.iter().map(|r| r.tool_failures).sum();
    if s.trajectories_given_back + failures > 0 {
        let back = s.trajectories_given_back;
        let text = format!(
            "no samples: {failures} tool calls that failed, {back} trajectories given back"
        );
        say("warn", text);
    }
    lines
}

/// Draws summary and both lists.
pub fn draw(state: &State, s: &Status, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let lines = summary(state, s);
    let (above, area) = split(area, lines.len() as u16);
    for (row, line) in lines.into_iter().enumerate() {
        put(buf, above, row as u16, line);
    }
    let [left, right] = match area.width >= BESIDE {
        true => {
            let halves = [
                Constraint::Fill(1),
                Constraint::Length(2),
                Constraint::Fill(1),
            ];
            let [left, _, right] = Layout::horizontal(halves).areas(area);
            [left, right]
        }
        false => Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area),
    };
    let Some(stored) = &state.stored else {
        let text = match state.playback {
            Some(_) => "the store is not part of a recording",
            None => "looking ...",
        };
        let inner = section(state, area, "STORE", buf);
        return say(state, text, inner, buf);
    };
    let inner = section(state, left, &checkpoints_title(state, stored), buf);
    match &stored.checkpoints {
        Ok(rows) => {
            let table = (TableId::Checkpoints, &CHECKPOINTS);
            grid::draw(state, table, rows, inner, buf, drawn);
        }
        Err(problem) => say(state, problem, inner, buf),
    }
    let inner = section(state, right, &trajectories_title(state, stored), buf);
    match &stored.trajectories {
        Ok(rows) => {
            let table = (TableId::Trajectories, &TRAJECTORIES);
            grid::draw(state, table, rows, inner, buf, drawn);
        }
        Err(problem) => say(state, problem, inner, buf),
    }
}

fn mark(state: &State, id: TableId) -> &'static str {
    match state.store_pane == id {
        true => state.look.glyph("▶ ", "> "),
        false => "  ",
    }
}

fn checkpoints_title(state: &State, stored: &Stored) -> String {
    let rows = state.checkpoints();
    let all: u64 = rows.iter().filter_map(|c| c.bytes).sum();
    let age = clock(state.now.saturating_sub(stored.at) as f64 / 1000.0);
    let mark = mark(state, TableId::Checkpoints);
    let (n, sum) = (rows.len(), bytes(all));
    format!("{mark}CHECKPOINTS {n}, {sum} (looked {age} ago)")
}

fn trajectories_title(state: &State, stored: &Stored) -> String {
    let rows = state.trajectories();
    let running = rows.iter().filter(|t| t.state == "running").count();
    let waiting = rows.len() - running;
    let more = if stored.cut { ", and more" } else { "" };
    let mark = mark(state, TableId::Trajectories);
    format!("{mark}TRAJECTORIES {running} in flight, {waiting} waiting for a step{more}")
}

fn say(state: &State, text: &str, area: Rect, buf: &mut Buffer) {
    let lines = wrapped(text, usize::from(area.width.saturating_sub(4)));
    for (row, line) in lines.into_iter().take(usize::from(area.height)).enumerate() {
        buf.set_string(area.x + 2, area.y + row as u16, line, state.look.faint());
    }
}
