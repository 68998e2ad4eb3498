//! The columns of the table of contexts.
use crate::console::table::{Cell, Column, Spec, figures, words};
use crate::console::ui::look::{Look, Tone};
use crate::format::{clock, of_total, ratio};
use crate::glance::{Care, Glance};
use ratatui::style::Style;

/// A row, and what is wrong with it, in words of the moment.
#[derive(Clone, Debug)]
pub struct Row {
    /// The context and its job.
    pub of: crate::glance::Row,
    /// What is wrong; empty: nothing is.
    pub trouble: String,
}

/// The table.
pub static SPEC: Spec<Row> = Spec {
    columns: &COLUMNS,
    name: |r| r.of.context.clone(),
    text: |r| {
        let job = r.of.job.as_ref().map_or("", |job| job.name.as_str());
        format!("{} {job} {} {}", r.of.context, r.of.state(), r.trouble)
    },
};

static COLUMNS: [Column<Row>; 11] = [
    words("CONTEXT", 12, 0, |r, look| {
        (r.of.context.clone(), look.strong())
    }),
    words("JOB", 12, 2, |r, _| of(r, |job| job.name.clone())),
    words("STATE", 12, 0, state),
    figures(
        "STEP",
        9,
        0,
        |r, _| {
            of(r, |job| {
                format!("{}{}", job.step, of_total(job.steps_total))
            })
        },
        |r| value(r, |job| job.step as f64),
    ),
    figures(
        "DONE",
        4,
        0,
        |r, _| {
            of(r, |job| {
                job.percent().map_or_else(dash, |p| format!("{p:.0}%"))
            })
        },
        |r| value(r, |job| job.percent().unwrap_or(-1.0)),
    ),
    figures(
        "ETA",
        6,
        0,
        |r, _| of(r, |job| job.eta_s.map_or_else(dash, clock)),
        |r| value(r, |job| job.eta_s.unwrap_or(f64::INFINITY)),
    ),
    figures(
        "ETTR",
        5,
        0,
        |r, _| of(r, |job| ratio(job.ettr_sliding)),
        |r| value(r, |job| job.ettr_sliding),
    ),
    figures(
        "GOODPUT",
        7,
        1,
        |r, _| of(r, |job| ratio(job.goodput)),
        |r| value(r, |job| job.goodput),
    ),
    figures("UP", 8, 0, up, |r| {
        value(r, |job| job.roles_up as f64 - job.roles as f64)
    }),
    figures(
        "EPOCH",
        5,
        3,
        |r, _| of(r, |job| job.epoch.map_or_else(dash, |e| e.to_string())),
        |r| value(r, |job| job.epoch.unwrap_or(0) as f64),
    ),
    words("TROUBLE", 0, 0, |r, look| {
        (r.trouble.clone(), tone(r, look))
    }),
];

fn dash() -> String {
    "-".to_owned()
}

/// What is said of a job; of one that was not heard of nothing is.
fn of(row: &Row, text: fn(&Glance) -> String) -> Cell {
    let text = row.of.job.as_ref().map_or_else(dash, text);
    (text, Style::new())
}

fn value(row: &Row, of: fn(&Glance) -> f64) -> f64 {
    row.of.job.as_ref().map_or(-2.0, of)
}

fn state(row: &Row, look: Look) -> Cell {
    let state = row.of.state();
    let as_known = match state {
        "away" => "lost",
        "asked" => "starting",
        other => other,
    };
    let text = format!("{} {state}", look.sign(as_known));
    (text, look.tone(look.tone_of(as_known)))
}

fn up(row: &Row, look: Look) -> Cell {
    let Some(job) = &row.of.job else {
        return (dash(), Style::new());
    };
    let style = match job.roles_up < job.roles {
        true => look.tone(Tone::Warn),
        false => Style::new(),
    };
    (format!("{}/{}", job.roles_up, job.roles), style)
}

fn tone(row: &Row, look: Look) -> Style {
    match row.of.care() {
        Care::Failed | Care::Away | Care::Alarmed => look.tone(Tone::Bad),
        Care::Recovers | Care::Waits => look.tone(Tone::Warn),
        Care::Asked | Care::Runs | Care::Over => Style::new(),
    }
}
