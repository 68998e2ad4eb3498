//! Incidents, and below all about the selected one: what was seen, decided, and where the time went.
mod table;

pub use table::draw_newest;

use crate::cascade;
use crate::console::key;
use crate::console::names::TableId;
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::table::Table;
use crate::console::ui::scroll::Scroll;
use crate::console::ui::{Drawn, section, split, wrapped};
use crate::format::{self, bar, millis, time_of_day_at, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use robust_proto::v1::Incident;

/// Cells of the longest bar.
const BAR: usize = 30;

/// The screen.
#[derive(Debug)]
pub struct Incidents {
    table: Table<Incident>,
    /// Of the details.
    scroll: Scroll,
}

impl Default for Incidents {
    fn default() -> Self {
        let table = Table::new(TableId("incidents"), &table::SPEC);
        Incidents {
            // The newest incident is what one looks for.
            table: table.sorted(1, true),
            scroll: Scroll::default(),
        }
    }
}

impl Screen for Incidents {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        match self.table.on(&input, common.job.incidents(), common) {
            Some(turned) => self.scroll.follow(turned),
            None => drop(self.scroll.on(&input)),
        }
        Vec::new()
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let all = common.job.incidents();
        let rows = (all.len() as u16).saturating_add(1);
        let (above, below) = split(area, rows.clamp(3, (area.height * 2 / 5).max(3)));
        self.table.draw(all, common, above, buf, drawn);
        let Some(incident) = self.table.chosen(all, common.look) else {
            return;
        };
        let title = format!(
            "INCIDENT {}: {} {}",
            incident.id,
            who(&incident.role, incident.index),
            incident.outcome
        );
        let inner = section(common.look, below, &title, buf);
        let lines = lines(common, incident, usize::from(inner.width));
        self.scroll.draw(lines, common.look, inner, buf, drawn);
    }

    fn hints<'a>(&'a self, _: &'a Common) -> Hints<'a> {
        Hints {
            own: &[],
            most: &[
                key::SELECT,
                key::FILTER,
                key::SORT,
                key::SCROLL,
                key::PALETTE,
                key::HELP,
                key::QUIT,
            ],
            typing: self.table.typing(),
            filter: self.table.filter(),
        }
    }
}

fn lines(sight: &Sight, i: &Incident, width: usize) -> Vec<Line<'static>> {
    let mut lines = words(sight, i, width);
    lines.push(Line::raw(""));
    let parts = [
        ("detect", i.detect_ms),
        ("restart", i.restart_ms),
        ("reconnect", i.reconnect_ms),
    ];
    lines.extend(parts.map(|(name, ms)| part(sight, name, ms, i.total_ms)));
    let total = format!(" {:<24} {:>8}", "total", millis(i.total_ms));
    lines.push(Line::styled(total, sight.look.strong()));
    if !i.stages.is_empty() {
        lines.push(Line::raw(""));
        let heading = " where the time went".to_owned();
        lines.push(Line::styled(heading, sight.look.faint()));
        let stages = i
            .stages
            .iter()
            .map(|s| part(sight, &s.name, s.ms, i.total_ms));
        lines.extend(stages);
    }
    if !i.evidence.is_empty() {
        lines.push(Line::raw(""));
        let heading = " evidence, taken before anything was killed".to_owned();
        lines.push(Line::styled(heading, sight.look.faint()));
        let room = width.saturating_sub(4);
        let evidence = i
            .evidence
            .lines()
            .map(|l| format!("   {}", sight.look.fit(l, room)));
        lines.extend(evidence.map(Line::raw));
    }
    lines
}

/// Rule, reason, plan and what was lost with it.
fn words(sight: &Sight, i: &Incident, width: usize) -> Vec<Line<'static>> {
    let when = time_of_day_at(i.at_ms, sight.zone);
    let swept: Vec<String> = i.swept.iter().map(u64::to_string).collect();
    let status = sight.job.status();
    let discarded = status.map_or(0, |s| s.trajectories_discarded);
    let lost = match (status.map_or("", |s| &s.policy), i.role.as_str()) {
        ("task", _) => format!("all in flight: {discarded} trajectories in this run so far"),
        (_, "trainer") => format!("what step {} had come to, done again", i.step + 1),
        _ => "no turn that was acknowledged".to_owned(),
    };
    let along = match swept.as_slice() {
        [] => "no other instance".to_owned(),
        [one] => format!("incarnation {one}"),
        all => format!("incarnations {}", all.join(", ")),
    };
    let cause = i.cause.as_ref().map(format::cause).unwrap_or_default();
    let root = match i.judged.as_str() {
        "" => i.root.clone(),
        judged => format!("{} (the rule had named {judged})", i.root),
    };
    let first = match i.under {
        0 => String::new(),
        first => format!("follows from incident {first}, and counts against no budget"),
    };
    let below = cascade::under(sight.job.incidents(), i.id);
    let below = below.map(|f| format!("{} {} ({})", f.id, who(&f.role, f.index), f.outcome));
    let below: Vec<String> = below.collect();
    let facts = [
        ("rule", i.rule.clone()),
        ("seen", i.reason.clone()),
        ("cause", cause),
        ("root", root),
        ("under", first),
        ("led to", below.join(", ")),
        (
            "at",
            format!(
                "{when}, in step {}, incarnation {}",
                i.step + 1,
                i.incarnation
            ),
        ),
        ("plan", i.plan.clone()),
        ("with it", along),
        ("lost", lost),
    ];
    let room = width.saturating_sub(12);
    let mut lines = Vec::new();
    for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
        let mut name = name;
        for text in wrapped(&sight.look.fit(&value, room * 3), room) {
            lines.push(Line::from(vec![
                Span::styled(format!(" {name:<8} "), sight.look.faint()),
                Span::raw(text),
            ]));
            name = "";
        }
    }
    lines
}

fn part(sight: &Sight, name: &str, ms: f64, total: f64) -> Line<'static> {
    let look = sight.look;
    Line::from(vec![
        Span::raw(format!(" {:<24} {:>8}  ", look.fit(name, 24), millis(ms))),
        Span::styled(bar(ms / total.max(1.0), BAR, look.ascii), look.accent()),
    ])
}
