//! The catalogue of drills, what the selected one does, and how the last run went.
use crate::console::drills::{DrillEnd, DrillFile, DrillRun, verdicts};
use crate::console::event::{Action, Event};
use crate::console::key::{self, Key};
use crate::console::names::TableId;
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::table::{Cell, Column, Spec, Table, figures, words};
use crate::console::ui::scroll::Scroll;
use crate::console::ui::{Drawn, section, split, wrapped};
use crate::format::clock;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

/// Its keys.
const KEYS: [Key; 2] = [RUN, END];
const RUN: Key = Key::act(
    "Enter",
    KeyCode::Enter,
    "run",
    "run the selected drill, on jobs of its own",
);
const END: Key = Key::act("X", KeyCode::Char('X'), "end", "end the drill that runs");

/// The screen.
#[derive(Debug)]
pub struct Drills {
    /// The drill files that there are, or why that is not known.
    files: Result<Vec<DrillFile>, String>,
    /// The drill that was started here last.
    run: Option<DrillRun>,
    table: Table<DrillFile>,
    /// Of the details.
    scroll: Scroll,
}

impl Default for Drills {
    fn default() -> Self {
        Drills {
            files: Ok(Vec::new()),
            run: None,
            table: Table::new(TableId("drills"), &SPEC),
            scroll: Scroll::default(),
        }
    }
}

impl Drills {
    fn files(&self) -> &[DrillFile] {
        self.files.as_deref().unwrap_or_default()
    }

    /// What was asked for, and what the drill that runs says.
    fn on_news(&mut self, news: Event, now: u64) -> Vec<Effect> {
        match (news, &mut self.run) {
            (Event::DrillsRead(files), _) => self.files = files,
            (Event::DrillSaid(line), Some(run)) => run.say(line),
            (Event::DrillEnded(end), Some(run)) => return vec![ended(run, end, now)],
            _ => {}
        }
        Vec::new()
    }

    /// The drill that runs.
    fn running(&self) -> Option<&DrillRun> {
        self.run.as_ref().filter(|run| run.end.is_none())
    }

    /// The drill that can be run now, one at a time, or why there is none.
    fn startable(&self, sight: &Sight) -> Result<&DrillFile, String> {
        if sight.read_only || sight.playback.is_some() {
            return Err("this console only reads".to_owned());
        }
        if let Some(running) = self.running() {
            return Err(format!(
                "drill {} is still running; X ends it",
                running.name
            ));
        }
        let file = self.table.chosen(self.files(), sight.look);
        let file = file.ok_or("there is no drill selected")?;
        match &file.plan {
            Ok(_) => Ok(file),
            Err(problem) => Err(problem.clone()),
        }
    }

    /// Runs the selected drill.
    fn start(&mut self, sight: &Sight) -> Effect {
        let (name, path) = match self.startable(sight) {
            Ok(file) => (file.name.clone(), file.path.clone()),
            Err(refusal) => return Effect::refuse(refusal),
        };
        self.run = Some(DrillRun::new(name, sight.now));
        Effect::Do(Action::RunDrill(path))
    }

    /// Ends the one that runs.
    fn end(&self) -> Effect {
        match self.running() {
            Some(_) => Effect::Do(Action::EndDrill),
            None => Effect::refuse("no drill runs"),
        }
    }
}

fn ended(run: &mut DrillRun, end: DrillEnd, now: u64) -> Effect {
    run.end = Some((now, end));
    Effect::Tell {
        text: format!("drill {} {}", run.name, run.state()),
        good: run.state() == "passed",
    }
}

impl Screen for Drills {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        let files = self.files.as_deref().unwrap_or_default();
        let turned = self.table.on(&input, files, common);
        if let Some(turned) = turned {
            self.scroll.follow(turned);
        }
        match input {
            Input::Shown => vec![Effect::Do(Action::ReadDrills)],
            _ if turned.is_some() || self.scroll.on(&input) => Vec::new(),
            Input::News(news) => self.on_news(news, common.now),
            Input::Key(KeyCode::Enter) => vec![self.start(common)],
            Input::Key(KeyCode::Char('X')) => vec![self.end()],
            _ => Vec::new(),
        }
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let files = self.files();
        let rows = (files.len() as u16).saturating_add(1);
        let (above, below) = split(area, rows.clamp(3, (area.height / 3).max(3)));
        let width = usize::from(area.width.saturating_sub(2));
        if let Err(problem) = &self.files {
            let inner = section(common.look, area, "DRILLS", buf);
            let mut lines = wrapped(problem, width);
            lines.push("name their folder with --drills DIR".to_owned());
            let lines = lines.into_iter().map(|l| Line::raw(format!(" {l}")));
            return self
                .scroll
                .draw(lines.collect(), common.look, inner, buf, drawn);
        }
        self.table.draw(files, common, above, buf, drawn);
        let running = self.running();
        let chosen = self.table.chosen(files, common.look);
        let shown = self
            .run
            .as_ref()
            .filter(|run| chosen.is_some_and(|c| c.name == run.name));
        let (title, lines) = match (running.or(shown), chosen) {
            (Some(run), _) => (run_title(common, run), run_lines(common, run)),
            (None, Some(file)) => (
                format!("DRILL {}: Enter runs it on jobs of its own", file.name),
                file_lines(file, width),
            ),
            (None, None) => return,
        };
        let inner = section(common.look, below, &title, buf);
        self.scroll.draw(lines, common.look, inner, buf, drawn);
    }

    fn hints<'a>(&'a self, _: &'a Common) -> Hints<'a> {
        Hints {
            own: &[&KEYS],
            most: &[
                key::SELECT,
                RUN,
                END,
                key::SCROLL,
                key::PALETTE,
                key::HELP,
                key::QUIT,
            ],
            typing: self.table.typing(),
            filter: self.table.filter(),
        }
    }

    fn refuses(&self, key: KeyCode, common: &Common) -> Option<String> {
        match key {
            KeyCode::Enter => self.startable(common).err(),
            KeyCode::Char('X') => self.end().refusal(),
            _ => None,
        }
    }
}

/// The table.
static SPEC: Spec<DrillFile> = Spec {
    columns: &COLUMNS,
    name: |d| d.name.clone(),
    text: |d| format!("{} {}", d.name, d.about),
};

static COLUMNS: [Column<DrillFile>; 4] = [
    words("DRILL", 18, 0, |d, look| (d.name.clone(), look.strong())),
    figures(
        "FAULTS",
        6,
        0,
        |d, _| plain(d.faults.to_string()),
        |d| d.faults as f64,
    ),
    words("FILE", 10, 0, |d, look| {
        let word = if d.plan.is_ok() { "done" } else { "failed" };
        let text = if d.plan.is_ok() { "usable" } else { "refused" };
        (
            format!("{} {text}", look.sign(word)),
            look.tone(look.tone_of(word)),
        )
    }),
    words("ABOUT", 0, 1, |d, _| plain(d.about.clone())),
];

fn plain(text: String) -> Cell {
    (text, Style::new())
}

fn file_lines(file: &DrillFile, width: usize) -> Vec<Line<'static>> {
    let mut lines = wrapped(&file.about, width);
    lines.push(String::new());
    match &file.plan {
        Ok(plan) => lines.extend(plan.iter().cloned()),
        Err(problem) => lines.extend(wrapped(problem, width)),
    }
    let lines = lines.into_iter().map(|l| Line::raw(format!(" {l}")));
    lines.collect()
}

fn run_title(sight: &Sight, run: &DrillRun) -> String {
    let until = run.end.as_ref().map_or(sight.now, |(at, _)| *at);
    let took = clock(until.saturating_sub(run.since) as f64 / 1000.0);
    match &run.end {
        None => format!("DRILL {} runs for {took}; X ends it", run.name),
        Some(_) => format!("DRILL {} {} after {took}", run.name, run.state()),
    }
}

/// Verdicts once there are any, then what it said, the newest first.
fn run_lines(sight: &Sight, run: &DrillRun) -> Vec<Line<'static>> {
    let look = sight.look;
    let result = run.end.as_ref().and_then(|(_, end)| end.result.as_ref());
    let mut lines: Vec<Line> = result
        .map(verdicts)
        .unwrap_or_default()
        .into_iter()
        .map(|(words, held)| {
            let word = if held { "done" } else { "failed" };
            let held = if held { "held" } else { "not met" };
            let text = format!(" {} {held:<8} {}", look.sign(word), look.fit(&words, 150));
            Line::styled(text, look.tone(look.tone_of(word)))
        })
        .collect();
    let said = run.lines.iter().rev();
    lines.extend(said.map(|l| Line::raw(format!(" {}", look.fit(l, 190)))));
    lines
}
