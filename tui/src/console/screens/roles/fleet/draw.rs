//! The cells, what they mean, whom the cursor is on, and who stands out.
use super::groups::By;
use super::health::Health;
use super::{Fleet, OUTLIERS, Scene, called};
use crate::console::state::Common;
use crate::console::ui::grid::IsMarked;
use crate::console::ui::look::Look;
use crate::console::ui::{Drawn, Spot, line, put, section, split};
use crate::format::{count, is_engine, millis_tight, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use robust_proto::v1::RoleStatus;
use robust_shared::wire::InstanceState;
use std::collections::BTreeMap;

/// Columns left of the cells for the sign beside the line of the cursor.
const GUTTER: u16 = 2;
/// Lines above the cells, and below them, before the list.
const MEANINGS: u16 = 2;
const CURSOR: u16 = 2;
/// Lines of the list with its heading, at least.
const LIST: u16 = 4;

impl Fleet {
    /// Draws all of it. How many lines the cells have does not hang on who stands out.
    pub fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let look = common.look;
        let below = area.height.saturating_sub(1 + MEANINGS);
        let list = LIST.max(area.height / 5 + 1);
        let lines = match below {
            0 => 0,
            _ => below.saturating_sub(CURSOR + list).max(1),
        };
        let size = (area.width.saturating_sub(GUTTER), lines);
        let scene = self.scene(common, size);
        let inner = section(look, area, &title(&scene), buf);
        let (meanings, inner) = split(inner, MEANINGS);
        put(buf, meanings, 0, healths(&scene, look, meanings.width));
        put(buf, meanings, 1, phases(&scene, look, meanings.width));
        let chosen = common.chosen_row();
        let at = chosen.and_then(|row| scene.cell_of(row));
        let marked = |row: &usize| common.instances().is_marked(&scene.roles[*row]);
        draw_cells(&scene, (at, &marked), look, inner, buf);
        drawn.field(Rect {
            x: inner.x + GUTTER.min(inner.width),
            width: size.0,
            height: lines,
            ..inner
        });
        let (_, inner) = split(inner, scene.field.lines());
        let (cursor, inner) = split(inner, CURSOR);
        if let Some(row) = chosen {
            put(buf, cursor, 0, who_it_is(&scene, row, look));
            if marked(&row) && cursor.height > 0 {
                let mark = look.glyph("◆", "*");
                buf.set_string(cursor.x, cursor.y, mark, look.strong());
            }
            let text = format!(" {}", about(&scene, row, at));
            let text = look.fit(&text, usize::from(cursor.width));
            put(buf, cursor, 1, Line::styled(text, look.faint()));
        }
        draw_outliers(&scene, chosen, look, inner, buf, drawn);
    }
}

/// How many there are, and how many of them a cell stands for.
fn title(scene: &Scene) -> String {
    let (shown, all) = (scene.groups.rows.len(), scene.roles.len());
    let of = match shown < all {
        true => format!("{shown} of {all}"),
        false => all.to_string(),
    };
    let by = scene.by.word();
    let each = match (scene.field.most(), scene.field.joined()) {
        (0 | 1, 0) => "a cell each".to_owned(),
        (most, 0) => format!("up to {most} in a cell: the worst shows"),
        (most, groups) => {
            format!("up to {most} of {groups} {by}s in a cell: the worst shows")
        }
    };
    format!("FLEET BY {}, {of} instances, {each}", by.to_uppercase())
}

/// How many of these there are of each health that there is, the worst first.
fn counts(scene: &Scene, rows: &[usize]) -> Vec<(Health, usize)> {
    let of = |health: Health| {
        let found = rows.iter().map(|row| scene.found.health[*row]);
        found.filter(|other| *other == health).count()
    };
    let all = Health::ALL.into_iter().map(|health| (health, of(health)));
    all.filter(|(_, n)| *n > 0).collect()
}

/// How many there are of each health, in the longest words that fit: a cell's line is too precious to be taken for them.
fn healths(scene: &Scene, look: Look, width: u16) -> Line<'static> {
    let counts = counts(scene, &scene.groups.rows);
    let lines = WORDINGS.map(|wording| healths_as(&counts, look, wording));
    let mut lines = Vec::from(lines);
    let first = lines.iter().position(|l| l.width() <= usize::from(width));
    lines.swap_remove(first.unwrap_or(WORDINGS.len() - 1))
}

/// What is called a health beside its count.
type Wording = fn(Health) -> &'static str;

/// From the longest to the shortest, with what stands between two counts: words; short ones; short ones close together;
/// signs and counts, where only those that run, who have no sign, are named.
const WORDINGS: [(Wording, &str); 4] = [
    (Health::word, "  "),
    (Health::short, "  "),
    (Health::short, " "),
    (
        |health| match health {
            Health::Running => health.short(),
            _ => "",
        },
        "  ",
    ),
];

fn healths_as(
    counts: &[(Health, usize)],
    look: Look,
    (word, gap): (Wording, &'static str),
) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for (at, (health, n)) in counts.iter().enumerate() {
        if at > 0 {
            spans.push(Span::raw(gap));
        }
        if *health != Health::Running {
            let (sign, style) = health.sign("", look);
            spans.push(Span::styled(format!("{sign} "), style));
        }
        let text = format!("{n} {}", word(*health));
        spans.push(Span::raw(text.trim_end().to_owned()));
    }
    Line::from(spans)
}

/// The letters of those that run, and how many there are of each; the most frequent ones where not all fit.
fn phases(scene: &Scene, look: Look, width: u16) -> Line<'static> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for &row in &scene.groups.rows {
        if scene.found.health[row] == Health::Running {
            *counts.entry(&scene.roles[row].phase).or_default() += 1;
        }
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let mut spans = vec![Span::raw(" ")];
    let mut used = 1;
    for (phase, n) in counts {
        let (sign, style) = Health::Running.sign(phase, look);
        let text = format!("{} {n}  ", look.fit(phase, 20));
        used += 2 + text.chars().count();
        if used > usize::from(width) {
            break;
        }
        spans.push(Span::styled(format!("{sign} "), style));
        spans.push(Span::styled(text, look.faint()));
    }
    Line::from(spans)
}

/// The cursor, and the cells with marked ones underlined.
fn draw_cells(
    scene: &Scene,
    (at, marked): (Option<usize>, &IsMarked<usize>),
    look: Look,
    area: Rect,
    buf: &mut Buffer,
) {
    let left = area.x + GUTTER;
    let width = usize::from(scene.names.saturating_sub(1));
    for label in scene.field.labels() {
        let name = look.fit(called(scene.groups.groups[label.group].name), width);
        buf.set_string(left + label.x, area.y + label.y, name, look.faint());
    }
    for (number, cell) in scene.field.cells().iter().enumerate() {
        let Some(row) = scene.worst(number) else {
            continue;
        };
        let (sign, mut style) = scene.found.health[row].sign(&scene.roles[row].phase, look);
        let y = area.y + cell.y;
        if scene.rows(number).iter().any(marked) {
            style = style.add_modifier(Modifier::UNDERLINED | Modifier::BOLD);
        }
        if at == Some(number) {
            // Reversed video alone would be lost in a copied screen.
            buf.set_string(area.x, y, look.glyph("▶", ">"), look.strong());
            style = style.patch(look.selection());
        }
        if let Some(place) = buf.cell_mut((left + cell.x, y)) {
            place.set_char(sign).set_style(style);
        }
    }
}

/// Who is under the cursor, and what it does.
fn who_it_is(scene: &Scene, row: usize, look: Look) -> Line<'static> {
    let r = &scene.roles[row];
    let (sign, style) = scene.found.health[row].sign(&r.phase, look);
    let state = match r.quarantined {
        true => InstanceState::Quarantined.word(),
        false => r.state.as_str(),
    };
    let lasts = millis_tight(r.phase_ms as f64);
    let mut does = format!("{} for {lasts}, v{}", r.phase, r.weight_version);
    if is_engine(&r.role) {
        let (rate, requests) = (count(r.tokens_per_s), r.running);
        does += &format!(", {rate} tokens/s, {requests} requests");
    }
    if let Some(ms) = r.step_ms {
        does += &format!(", step {}", millis_tight(ms as f64));
    }
    let name = look.fit(&who(&r.role, r.index), 20);
    Line::from(vec![
        Span::styled(format!(" {name}  "), look.strong()),
        Span::styled(format!("{sign} {}  ", look.fit(state, 20)), style),
        Span::raw(look.fit(&does, 200)),
    ])
}

/// Where it is, why it stands out by a figure, and with whom it shares its cell.
fn about(scene: &Scene, row: usize, at: Option<usize>) -> String {
    let r = &scene.roles[row];
    let mut parts = vec![place(r)];
    if scene.found.health[row] == Health::Off {
        let outlier = scene.found.place(row).map(|at| &scene.found.outliers[at]);
        parts.extend(outlier.map(|outlier| outlier.why(r)));
    }
    if r.restarts > 0 {
        parts.push(format!("restarts {}", r.restarts));
    }
    let rows = at.map_or(&[][..], |cell| scene.rows(cell));
    if rows.len() > 1 {
        let counts = counts(scene, rows);
        let words = counts.into_iter().map(|(h, n)| format!("{n} {}", h.word()));
        let words: Vec<String> = words.collect();
        parts.push(format!("in its cell {}", words.join(", ")));
    }
    parts.join("; ")
}

fn place(r: &RoleStatus) -> String {
    match (r.node.as_str(), r.slot.as_str()) {
        ("", _) => "without a slot".to_owned(),
        (node, slot) => format!("on {node}, {slot}"),
    }
}

/// The list, around the selected one where that is among them.
fn draw_outliers(
    scene: &Scene,
    chosen: Option<usize>,
    look: Look,
    area: Rect,
    buf: &mut Buffer,
    drawn: &mut Drawn,
) {
    let outliers = &scene.found.outliers;
    let room = usize::from(area.height.saturating_sub(1));
    let at = chosen.and_then(|row| scene.found.place(row));
    let first = at.map_or(0, |at| (at + 1).saturating_sub(room));
    let shown = outliers.iter().enumerate().skip(first).take(room);
    let title = match (outliers.len(), shown.len()) {
        (0, _) => "OUTLIERS: nobody stands out".to_owned(),
        (all, 0) => format!("OUTLIERS, {all}"),
        (all, n) => {
            let (from, to) = (first + 1, first + n);
            format!("OUTLIERS {from} to {to} of {all}, worst first")
        }
    };
    let inner = section(look, area, &title, buf);
    drawn.spot(area, Spot::Body(OUTLIERS));
    for (at, (number, outlier)) in (0..).zip(shown) {
        let r = &scene.roles[outlier.row];
        let (sign, style) = outlier.health.sign(&r.phase, look);
        let mark = match chosen == Some(outlier.row) {
            true => look.glyph("▶", ">"),
            false => " ",
        };
        let name = look.fit(&who(&r.role, r.index), 13);
        let mut why = outlier.why(r);
        if scene.by == By::Node && !r.node.is_empty() {
            why = format!("{}: {why}", r.node);
        }
        let spans = vec![
            Span::styled(format!("{mark} "), look.strong()),
            Span::styled(format!("{sign} "), style),
            Span::styled(format!("{name:<13} "), look.strong()),
            Span::styled(format!("{:<12}", outlier.health.word()), style),
            Span::raw(look.fit(&why, usize::from(inner.width.saturating_sub(30)))),
        ];
        put(buf, inner, at, Line::from(spans));
        drawn.spot(line(inner, at), Spot::Row(OUTLIERS, number));
    }
}
