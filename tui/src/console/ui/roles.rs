//! The table of instances.
use super::super::state::State;
use super::super::table::{Cell, Column, Spec, figures, words};
use crate::format::{bytes, count, is_engine, millis_tight, who};
use ratatui::style::Style;
use robust_proto::v1::RoleStatus;

/// All there is to say.
pub static SPEC: Spec<RoleStatus> = Spec {
    columns: &COLUMNS,
    name: |r| who(&r.role, r.index),
    text,
};

static ON_ONE_NODE: Spec<RoleStatus> = Spec {
    columns: COLUMNS.split_at(COLUMNS.len() - 1).0,
    name: |r| who(&r.role, r.index),
    text,
};

/// Where a role is, is worth a column when there is a choice.
pub fn spec(state: &State) -> &'static Spec<RoleStatus> {
    match state.job.nodes().len() {
        0 | 1 => &ON_ONE_NODE,
        _ => &SPEC,
    }
}

fn text(r: &RoleStatus) -> String {
    let name = who(&r.role, r.index);
    let routed = if r.quarantined { "quarantined" } else { "" };
    format!(
        "{name} {} {} {} {} v{} {routed}",
        r.state, r.phase, r.node, r.slot, r.weight_version
    )
}

static COLUMNS: [Column<RoleStatus>; 16] = [
    words("ROLE", 10, 0, |r, look| {
        (who(&r.role, r.index), look.strong())
    }),
    words("STATE", 13, 0, |r, look| {
        // An operator's hand is worth more than that it runs.
        let state = if r.quarantined {
            "quarantined"
        } else {
            &r.state
        };
        (
            format!("{} {state}", look.sign(state)),
            look.tone(look.tone_of(state)),
        )
    }),
    words("PHASE", 15, 0, |r, _| plain(r.phase.clone())),
    figures(
        "IN IT",
        6,
        0,
        |r, _| plain(millis_tight(r.phase_ms as f64)),
        |r| r.phase_ms as f64,
    ),
    figures(
        "VERS",
        5,
        0,
        |r, _| plain(r.weight_version.to_string()),
        |r| r.weight_version as f64,
    ),
    figures(
        "TOK/S",
        6,
        0,
        |r, _| only_engine(r, count(r.tokens_per_s)),
        |r| r.tokens_per_s,
    ),
    figures(
        "RUN",
        4,
        1,
        |r, _| only_engine(r, r.running.to_string()),
        |r| f64::from(r.running),
    ),
    figures(
        "STEP",
        6,
        4,
        |r, _| plain(r.step_ms.map_or_else(dash, |ms| millis_tight(ms as f64))),
        |r| r.step_ms.unwrap_or(0) as f64,
    ),
    figures(
        "CPU",
        5,
        2,
        |r, _| plain(format!("{:.0}%", r.cpu_percent)),
        |r| r.cpu_percent,
    ),
    figures(
        "GPU",
        5,
        4,
        |r, _| plain(r.gpu_percent.map_or_else(dash, |p| format!("{p:.0}%"))),
        |r| r.gpu_percent.unwrap_or(-1.0),
    ),
    figures(
        "RSTRT",
        5,
        3,
        |r, look| {
            let style = if r.restarts > 0 {
                look.strong()
            } else {
                look.faint()
            };
            (r.restarts.to_string(), style)
        },
        |r| f64::from(r.restarts),
    ),
    figures(
        "MEMORY",
        8,
        5,
        |r, _| plain(bytes(r.rss_bytes)),
        |r| r.rss_bytes as f64,
    ),
    figures(
        "GPU MEM",
        8,
        6,
        |r, _| plain(r.gpu_memory_bytes.map_or_else(dash, bytes)),
        |r| r.gpu_memory_bytes.unwrap_or(0) as f64,
    ),
    figures(
        "PID",
        8,
        7,
        |r, look| (r.pid.to_string(), look.faint()),
        |r| f64::from(r.pid),
    ),
    figures(
        "INCARN",
        6,
        8,
        |r, look| (r.incarnation.to_string(), look.faint()),
        |r| r.incarnation as f64,
    ),
    words("NODE", 7, 1, |r, _| plain(r.node.clone())),
];

fn dash() -> String {
    "-".to_owned()
}

fn plain(text: String) -> Cell {
    (text, Style::new())
}

fn only_engine(r: &RoleStatus, text: String) -> Cell {
    plain(if is_engine(&r.role) {
        text
    } else {
        "-".to_owned()
    })
}
