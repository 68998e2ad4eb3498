//! How a trajectory that is read is drawn.
use super::page::{Line as Tokens, Page, Row};
use super::{By, Reader, group};
use crate::console::state::Sight;
use crate::console::ui::look::{Look, Tone};
use crate::console::ui::{Drawn, Spot, below, put, section, split, wrapped};
use crate::format::{count, time_of_day_at};
use crate::trajectories::{Token, witness};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use robust_proto::v1;
use robust_shared::printable;
use std::borrow::Cow;

/// From this width on the table stands beside the text.
const BESIDE: u16 = 110;
/// Cells of the table there.
const TABLE: u16 = 50;
/// From this height on there is room for all that the records tell.
const HIGH: u16 = 30;
/// Cells of the margin.
const MARGIN: u16 = 7;

/// Said in place of the table.
const NONE_OF_PROMPT: &str = "the group is empty: the job has no trajectory of this prompt";

/// Less likely than that is unlikely, and than that hardly to be expected.
const UNLIKELY: f32 = 0.5;
const RARE: f32 = 0.1;

impl Reader {
    /// Draws it.
    pub fn draw(&self, sight: &Sight, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let inner = section(sight.look, area, &self.title(sight.look), buf);
        let facts = self.facts(sight, area);
        let (above, rest) = split(inner, facts.len() as u16);
        for (row, line) in facts.into_iter().enumerate() {
            put(buf, above, row as u16, line);
        }
        if area.width >= BESIDE {
            let [left, _, right] = Layout::horizontal([
                Constraint::Length(TABLE),
                Constraint::Length(2),
                Constraint::Fill(1),
            ])
            .areas(rest);
            let title = format!("OF THE SAME PROMPT: {}", self.members.len());
            let inner = section(sight.look, left, &title, buf);
            self.draw_members(sight, inner, buf, drawn);
            return self.draw_text(sight, right, buf, drawn);
        }
        let rows = (self.members.len() as u16).saturating_add(1);
        let (table, text) = split(rest, rows.clamp(2, (rest.height / 2).clamp(2, 5)));
        self.draw_members(sight, table, buf, drawn);
        self.draw_text(sight, text, buf, drawn);
    }

    fn title(&self, look: Look) -> String {
        let state = self.told.as_ref().map_or("", group::state);
        let sign = match state {
            "" => String::new(),
            state => format!("{} ", group::sign(look, state)),
        };
        let state = state.replace('_', " ");
        format!("TRAJECTORY {}  {sign}{state}", self.id)
    }

    /// What is known of it, a line each, as many as there is room for.
    fn facts(&self, sight: &Sight, area: Rect) -> Vec<Line<'static>> {
        let Some(told) = &self.told else {
            return Vec::new();
        };
        let cells = usize::from(area.width);
        let mut lines = figures(sight.look, told, self.text.versions(), cells);
        let time = |ms| time_of_day_at(ms, sight.zone);
        let records = told.witness.as_ref().map(|w| witness::text(w, &time));
        let most = if area.height >= HIGH { 6 } else { 2 };
        let width = usize::from(area.width.saturating_sub(1));
        let records = records.unwrap_or_default();
        let shown = records.lines().take(most).map(|line| {
            let line = sight.look.fit(&harmless(line), width);
            Line::styled(format!(" {line}"), sight.look.faint())
        });
        lines.extend(shown);
        lines
    }

    fn draw_members(&self, sight: &Sight, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        match (&self.group_trouble, self.members.is_empty()) {
            (Some(why), true) => say(sight.look, why, area, buf),
            (None, true) if self.group_told => say(sight.look, NONE_OF_PROMPT, area, buf),
            (None, true) => say(sight.look, "looking ...", area, buf),
            (_, false) => self.table.draw(&self.members, sight, area, buf, drawn),
        }
    }

    fn draw_text(&self, sight: &Sight, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        if area.height < 2 || area.width <= MARGIN {
            return;
        }
        let inner = below(area, 1);
        let width = inner.width - MARGIN;
        drawn.read_on(width, inner.height);
        drawn.spot(inner, Spot::Text);
        let page = match &self.page {
            Some(page) if page.width() == width => Cow::Borrowed(page),
            // The first frame of this width: the next input sets it.
            _ => Cow::Owned(Page::of(&self.text, width, sight.look)),
        };
        let rows = page.rows();
        let room = usize::from(inner.height);
        let last = rows.len().saturating_sub(room);
        let first = self.top.map_or(last, |top| top.min(last));
        let shown = &rows[first..rows.len().min(first + room)];
        let place = match rows.len() {
            0 => String::new(),
            all => format!(", lines {}-{} of {all}", first + 1, first + shown.len()),
        };
        let title = format!("{}{place}{}", self.of_what(), self.follows(first == last));
        section(sight.look, area, &title, buf);
        if let Some(why) = self.nothing() {
            return say(sight.look, &why, inner, buf);
        }
        for (row, line) in shown.iter().enumerate() {
            put(buf, inner, row as u16, self.line(sight.look, line, width));
        }
    }

    /// What the text is, and what its colours say.
    fn of_what(&self) -> String {
        let by = match self.by {
            By::Version => "by weights",
            By::Logprob => "by likelihood, the margin has the least",
        };
        let told = self.told.as_ref();
        let untold = told.map_or("", |told| told.no_text.as_str());
        let unknown = !self.text.tokens().is_empty() && self.text.piece(0).is_none();
        match (&self.trouble, untold) {
            (Some(why), _) => format!("TEXT {by}, as it was; {}", harmless(why)),
            (None, "") if unknown => format!("TOKENS {by}; this robustd sends no text"),
            (None, "") => format!("TEXT {by}"),
            (None, why) => format!("TOKENS {by}; no text: {}", harmless(why)),
        }
    }

    fn follows(&self, at_end: bool) -> &'static str {
        let grows = self.told.as_ref().is_some_and(group::grows);
        match grows && at_end && self.top.is_none() {
            true => ", follows its end",
            false => "",
        }
    }

    /// Why there is nothing to read.
    fn nothing(&self) -> Option<String> {
        if !self.text.tokens().is_empty() {
            return None;
        }
        if let Some(why) = &self.trouble {
            return Some(why.clone());
        }
        let why = match &self.told {
            None => "looking ...",
            Some(told) if told.witness.as_ref().is_some_and(|w| !w.kept) => {
                "its turns are no longer kept"
            }
            Some(_) => "nothing of it is stored yet",
        };
        Some(why.to_owned())
    }

    fn line(&self, look: Look, row: &Row, width: u16) -> Line<'static> {
        let margin = usize::from(MARGIN);
        let words = |words: &str, style: Style| {
            let words = look.fit(words, usize::from(width));
            Line::from(vec![
                Span::raw(" ".repeat(margin)),
                Span::styled(words, style),
            ])
        };
        match row {
            Row::Head(head) => {
                let head = look.fit(
                    &format!("{} {head}", look.glyph("──", "--")),
                    usize::from(width),
                );
                Line::styled(format!("  {head}"), look.strong())
            }
            Row::Words(text) => words(text, look.faint()),
            Row::Tokens(tokens) => {
                let mut spans = vec![self.margin(look, tokens)];
                spans.extend(self.tokens(look, tokens));
                Line::from(spans)
            }
        }
    }

    /// What stands before a line: the weights where others go on, or how likely its least likely token was.
    fn margin(&self, look: Look, line: &Tokens) -> Span<'static> {
        let width = usize::from(MARGIN) - 1;
        let first = self.text.token(line.first);
        let text = match self.by {
            By::Version => first
                .and_then(|token| token.version)
                .filter(|_| line.is_new)
                .map_or_else(String::new, |version| format!("v{version}")),
            By::Logprob => {
                let tokens = line
                    .runs
                    .iter()
                    .filter_map(|run| self.text.token(run.token));
                let least = tokens.filter_map(|token| token.logprob).reduce(f32::min);
                least.map_or_else(String::new, |least| format!("{least:.2}"))
            }
        };
        let style = match self.by {
            By::Version => first.map_or_else(Style::new, |token| self.style(look, token)),
            By::Logprob => look.faint(),
        };
        Span::styled(format!("{text:>width$} "), style)
    }

    /// The tokens of a line, those that look the same together.
    fn tokens(&self, look: Look, line: &Tokens) -> Vec<Span<'static>> {
        let mut spans: Vec<(String, Style)> = Vec::new();
        for run in &line.runs {
            let token = self.text.token(run.token);
            let style = token.map_or_else(Style::new, |token| self.style(look, token));
            match spans.last_mut() {
                Some((text, last)) if *last == style => text.push_str(&run.text),
                _ => spans.push((run.text.clone(), style)),
            }
        }
        let span = |(text, style): (String, Style)| Span::styled(text, style);
        spans.into_iter().map(span).collect()
    }

    fn style(&self, look: Look, token: &Token) -> Style {
        let Some(version) = token.version else {
            return look.faint();
        };
        if self.by == By::Version {
            let versions = self.text.versions();
            return look.one_of(versions.iter().take_while(|v| **v < version).count());
        }
        match token.logprob.map(f32::exp) {
            None => look.faint(),
            // Told apart without colours, too.
            Some(p) if p < RARE => look.tone(Tone::Bad).add_modifier(Modifier::UNDERLINED),
            Some(p) if p < UNLIKELY => look.tone(Tone::Warn),
            Some(_) => Style::new(),
        }
    }
}

/// Reward, length and weights, in as many lines of so many cells as they take: none of them is cut.
fn figures(look: Look, t: &v1::Trajectory, versions: &[u64], width: usize) -> Vec<Line<'static>> {
    let reward = match t.reward {
        Some(reward) => format!("{reward:.2}"),
        None => "none yet".to_owned(),
    };
    let turns = match t.turn_count {
        1 => "1 turn".to_owned(),
        n => format!("{n} turns"),
    };
    let weights = match (versions.first(), versions.last()) {
        (Some(first), Some(last)) if first < last => format!("v{first} to v{last}"),
        (Some(first), _) => format!("v{first}"),
        (None, _) => "-".to_owned(),
    };
    let length = format!("{} tokens in {turns}", count(t.tokens as f64));
    let mut facts = vec![("reward", reward), ("length", length), ("weights", weights)];
    facts.extend(t.staleness.map(|n| ("stale by", n.to_string())));
    if !t.answer.is_empty() {
        facts.push(("answer", look.fit(&harmless(&t.answer), 40)));
    }
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (name, value) in facts {
        let fact = [
            Span::styled(format!(" {name} "), look.faint()),
            Span::raw(format!("{value} ")),
        ];
        let cells: usize = fact.iter().map(Span::width).sum();
        // The blank at the end of a line may lie beyond its edge.
        let last = lines.last_mut();
        match last.filter(|line| line.width() + cells <= width + 1) {
            Some(line) => line.spans.extend(fact),
            None => lines.push(Line::from_iter(fact)),
        }
    }
    lines
}

/// A line of others as a terminal may have it.
fn harmless(line: &str) -> String {
    line.chars().map(printable::character).collect()
}

fn say(look: Look, text: &str, area: Rect, buf: &mut Buffer) {
    let width = usize::from(area.width.saturating_sub(4));
    let lines = wrapped(&harmless(text), width);
    for (row, line) in lines.into_iter().take(usize::from(area.height)).enumerate() {
        let line = look.fit(&line, width);
        put(
            buf,
            area,
            row as u16,
            Line::styled(format!("  {line}"), look.faint()),
        );
    }
}
