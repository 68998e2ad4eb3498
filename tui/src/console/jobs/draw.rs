//! The jobs side by side, drawn.
use super::Jobs;
use super::columns::Row;
use crate::console::frame::is_too_small;
use crate::console::ui::look::{Look, Tone};
use crate::console::ui::{Drawn, below, line, put, put_ends, section, split, wrapped};
use crate::format::{clock, of_total, ratio};
use crate::glance::{Care, Glance};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Lines of the details with their heading, at most.
const DETAILS: u16 = 9;
/// Cells of what is said of a line of them.
const NAMES: usize = 10;

/// The keys, for the last line; those at the end go last.
const KEYS: [(&str, &str); 8] = [
    ("j/k", "select"),
    ("Enter", "open"),
    ("Esc", "back"),
    ("/", "filter"),
    ("< >", "sort"),
    ("w", "order"),
    ("r", "reach"),
    ("q", "quit"),
];

/// Draws a frame.
pub fn draw(jobs: &Jobs, frame: &mut Frame) -> Drawn {
    let area = frame.area();
    let buf = frame.buffer_mut();
    let look = jobs.sight.look;
    let mut drawn = jobs.sight.drawn.next();
    if is_too_small(area, buf) {
        return drawn;
    }
    let order = if jobs.by_name {
        "by name "
    } else {
        "worst first "
    };
    let order = Line::styled(order, look.faint());
    put_ends(buf, line(area, 0), 0, title(jobs, look), order);
    let (body, last) = split(below(area, 1), area.height - 2);
    draw_keys(jobs, look, last, buf);
    if jobs.rows.is_empty() {
        draw_nobody(jobs, look, body, buf);
        return drawn;
    }
    let details = DETAILS.min(body.height / 2);
    let rows = u16::try_from(jobs.rows.len()).unwrap_or(u16::MAX);
    let (table, rest) = split(body, rows.saturating_add(1).min(body.height - details));
    jobs.table
        .draw(&jobs.rows, &jobs.sight, table, buf, &mut drawn);
    if let Some(row) = jobs.table.chosen(&jobs.rows, look) {
        let heading = format!("CONTEXT {}", row.of.context);
        let inner = section(look, rest, &heading, buf);
        let width = usize::from(inner.width).saturating_sub(NAMES + 2);
        let lines = details_of(jobs, row, width);
        for (at, line) in (0..inner.height).zip(lines) {
            put(buf, inner, at, line);
        }
    }
    drawn
}

/// How many there are, and how many of them want somebody.
fn title(jobs: &Jobs, look: Look) -> Line<'static> {
    let all = jobs.rows.len();
    let noun = if all == 1 { "context" } else { "contexts" };
    let mut spans = vec![
        Span::styled(" ALL JOBS  ", look.strong()),
        Span::raw(format!("{all} {noun}")),
    ];
    let counted = [
        (Care::Failed, "failed", Tone::Bad),
        (Care::Away, "not reachable", Tone::Bad),
        (Care::Alarmed, "with alarms", Tone::Bad),
        (Care::Recovers, "recovering", Tone::Warn),
    ];
    for (care, words, tone) in counted {
        let n = jobs.rows.iter().filter(|r| r.of.care() == care).count();
        if n > 0 {
            spans.push(Span::styled(format!(", {n} {words}"), look.tone(tone)));
        }
    }
    Line::from(spans)
}

/// Where contexts are written, where there is none.
fn draw_nobody(jobs: &Jobs, look: Look, area: Rect, buf: &mut Buffer) {
    let width = usize::from(area.width.saturating_sub(2));
    let file = format!("no context is written down in {}", jobs.file);
    let mut lines = vec![String::new()];
    lines.extend(wrapped(&file, width));
    lines.extend(
        [
            "",
            "[prod]",
            "connect = \"head.example:7070\"",
            "token_file = \"prod.token\"",
            "",
            "names the daemon that listens there; `state_dir = \"DIR\"` one of this machine",
        ]
        .map(str::to_owned),
    );
    for (row, text) in (0..area.height).zip(lines) {
        let text = look.fit(&format!(" {text}"), usize::from(area.width));
        put(buf, area, row, Line::raw(text));
    }
}

/// All that there is to say of one.
fn details_of(jobs: &Jobs, row: &Row, width: usize) -> Vec<Line<'static>> {
    let look = jobs.sight.look;
    let mut facts: Vec<(&str, String, Style)> = Vec::new();
    if let Some(away) = &row.of.away {
        let ago = away
            .since_ms
            .map_or(0, |ms| jobs.sight.now.saturating_sub(ms));
        let ago = clock(ago as f64 / 1000.0);
        let text = format!("not reachable {}, for {ago}", row.trouble);
        facts.push(("daemon", text, look.tone(Tone::Bad)));
    } else if !row.trouble.is_empty() {
        facts.push(("trouble", row.trouble.clone(), look.tone(Tone::Bad)));
    }
    match &row.of.job {
        Some(job) => facts.extend(of_job(job).map(|(name, text)| (name, text, Style::new()))),
        None => facts.push((
            "job",
            "nothing was heard of it yet".to_owned(),
            look.faint(),
        )),
    }
    facts.push(("at", row.of.place.clone(), look.faint()));
    let lines = facts.into_iter().flat_map(|(name, text, style)| {
        let parts = wrapped(&text, width);
        let names = std::iter::once(name).chain(std::iter::repeat(""));
        let line = move |(name, part): (&str, String)| {
            let name = Span::styled(format!(" {name:<NAMES$} "), look.faint());
            Line::from(vec![name, Span::styled(look.fit(&part, width), style)])
        };
        names.zip(parts).map(line).collect::<Vec<_>>()
    });
    lines.collect()
}

fn of_job(job: &Glance) -> [(&'static str, String); 5] {
    let dash = || "-".to_owned();
    let done = job
        .percent()
        .map_or_else(String::new, |p| format!(" ({p:.0}%)"));
    let eta = job
        .eta_s
        .map_or_else(String::new, |s| format!(", ETA {}", clock(s)));
    let leader = match job.epoch {
        Some(epoch) => format!("{}, epoch {epoch}", job.leader),
        None => dash(),
    };
    [
        ("job", format!("{}, {}", job.name, job.state)),
        (
            "step",
            format!("{}{}{done}{eta}", job.step, of_total(job.steps_total)),
        ),
        (
            "ETTR",
            format!(
                "{} over 5 min, {} overall; goodput {}",
                ratio(job.ettr_sliding),
                ratio(job.ettr),
                ratio(job.goodput)
            ),
        ),
        (
            "roles",
            format!(
                "{} of {} up; alarms {}",
                job.roles_up, job.roles, job.alarms
            ),
        ),
        ("leader", leader),
    ]
}

/// Keys, what is typed, or why something was not done.
fn draw_keys(jobs: &Jobs, look: Look, area: Rect, buf: &mut Buffer) {
    let width = usize::from(area.width);
    if let Some((text, _)) = &jobs.notice {
        let text = look.fit(&format!(" {} {text}", look.sign("failed")), width);
        return put(buf, area, 0, Line::styled(text, look.tone(Tone::Bad)));
    }
    if let Some((label, words)) = jobs.table.typing() {
        let cursor = look.glyph("▏", "_");
        let text = format!(" {label}: {}{cursor}", look.fit(words, 40));
        return put(buf, area, 0, Line::raw(text));
    }
    let mut spans = vec![Span::raw(" ")];
    if !jobs.table.filter().is_empty() {
        let text = format!("filter: {} (Esc)   ", look.fit(jobs.table.filter(), 20));
        spans.push(Span::styled(text, look.tone(Tone::Warn)));
    }
    let keys = KEYS
        .into_iter()
        .filter(|(key, _)| jobs.below || *key != "Esc");
    for (key, does) in keys {
        spans.push(Span::styled(key, look.strong().patch(look.accent())));
        spans.push(Span::styled(format!(" {does}  "), look.faint()));
    }
    put(buf, area, 0, Line::from(spans));
}
