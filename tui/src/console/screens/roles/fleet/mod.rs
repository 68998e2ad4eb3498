//! All instances at once, a cell each, and a list of those that stand out. The cursor is the instance that is selected in the
//! table, so that what a key does is done to whom the line below the cells names.
//!
//! ```text
//!  FLEET BY ROLE, 300 instances, a cell each
//!   X 1 failed  ~ 2 restarting  297 running
//!   G generating 280  U update 8  w pull_weights 9
//!    trainer UUUUUUUU
//!  > rollout GGGGGGGGXGGGGGGwGGGGG
//!   rollout-8  X down  init for 12.0s
//!   OUTLIERS 1 to 3 of 3, worst first
//!  > X rollout-8    failed      init for 12.0s
//! ```
mod draw;
mod field;
mod groups;
mod health;
mod outliers;

use crate::console::key::Key;
use crate::console::names::TableId;
use crate::console::state::Common;
use crate::console::ui::Spot;
use crossterm::event::KeyCode;
use field::Field;
use groups::{By, Groups};
use outliers::Found;
use robust_proto::v1::RoleStatus;

/// With more instances than this the screen begins with its cells: a table has as many pages then.
pub const MANY: usize = 200;
/// Lines that a page is.
const PAGE: isize = 10;
/// Columns for the name of a group, the space behind it among them.
const LONGEST_NAME: usize = 17;
/// The list of those that stand out, for the mouse.
const OUTLIERS: TableId = TableId("outliers");

/// Over the cells.
pub const MOVE: Key = Key::hand("h j k l g G", "hjkl", "move", "move over the cells");
/// From a cell to a row.
pub const OPEN: Key = Key::act(
    "Enter",
    KeyCode::Enter,
    "open",
    "open the instance in the table",
);
/// Through the list.
pub const NEXT: Key = Key::act(
    "o",
    KeyCode::Char('o'),
    "outlier",
    "to the next that stands out",
);
/// What stands together.
pub const GROUP: Key = Key::act(
    "b",
    KeyCode::Char('b'),
    "group",
    "group the cells by role, or by node",
);
/// Back to the table.
pub const TABLE: Key = Key::act("v", KeyCode::Char('v'), "table", "the instances as a table");

/// Its keys besides those for an instance.
pub const KEYS: [Key; 5] = [MOVE, OPEN, NEXT, GROUP, TABLE];

/// All instances as cells.
#[derive(Debug, Default)]
pub struct Fleet {
    by: By,
}

/// Where the cursor goes.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many cells on, in the order of the instances.
    Along(isize),
    /// So many lines down.
    Down(isize),
}

impl Step {
    fn of(code: KeyCode) -> Option<Step> {
        Some(match code {
            KeyCode::Left | KeyCode::Char('h') => Step::Along(-1),
            KeyCode::Right | KeyCode::Char('l') => Step::Along(1),
            KeyCode::Home | KeyCode::Char('g') => Step::Along(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => Step::Along(isize::MAX),
            KeyCode::Up | KeyCode::Char('k') => Step::Down(-1),
            KeyCode::Down | KeyCode::Char('j') => Step::Down(1),
            KeyCode::PageUp => Step::Down(-PAGE),
            KeyCode::PageDown => Step::Down(PAGE),
            _ => return None,
        })
    }
}

impl Fleet {
    /// Takes a key; whether it is one of the cells'.
    pub fn on_key(&mut self, code: KeyCode, common: &mut Common) -> bool {
        let row = match code {
            KeyCode::Char('b') => {
                self.by = self.by.other();
                None
            }
            KeyCode::Char('o') => self.outlier(common, |at, all| at.map_or(0, |at| (at + 1) % all)),
            code => match Step::of(code) {
                Some(step) => self.step(common, step),
                None => return false,
            },
        };
        choose(common, row);
        true
    }

    /// Takes a click.
    pub fn on_click(&self, spot: Spot, common: &mut Common) {
        let scene = || self.scene(common, common.drawn.field_size());
        let row = match spot {
            Spot::Cell { x, y } => {
                let scene = scene();
                scene.field.at(x, y).and_then(|cell| scene.worst(cell))
            }
            Spot::Row(OUTLIERS, number) => {
                let outliers = scene().found.outliers;
                outliers.get(number).map(|outlier| outlier.row)
            }
            _ => None,
        };
        choose(common, row);
    }

    /// Takes a notch of the wheel.
    pub fn on_wheel(&self, spot: Spot, by: isize, common: &mut Common) {
        let by = by.signum();
        let row = match spot {
            Spot::Cell { .. } => self.step(common, Step::Down(by)),
            Spot::Row(OUTLIERS, _) | Spot::Body(OUTLIERS) => self.outlier(common, |at, all| {
                at.map_or(0, |at| at.saturating_add_signed(by).min(all - 1))
            }),
            _ => None,
        };
        choose(common, row);
    }

    /// Whom the cursor is on after a step; none: where it was.
    fn step(&self, common: &Common, step: Step) -> Option<usize> {
        let scene = self.scene(common, common.drawn.field_size());
        let from = scene.cell_of(common.chosen_row()?)?;
        let to = match step {
            Step::Along(by) => scene.field.along(from, by),
            Step::Down(by) => scene.field.down(from, by),
        };
        scene.worst(to.filter(|to| *to != from)?)
    }

    /// One of those that stand out, by where the selected one stands among them, if it does, and how many they are.
    fn outlier(
        &self,
        common: &Common,
        which: impl FnOnce(Option<usize>, usize) -> usize,
    ) -> Option<usize> {
        let found = self.scene(common, (0, 0)).found;
        let all = found.outliers.len();
        let at = common.chosen_row().and_then(|row| found.place(row));
        let to = (all > 0).then(|| which(at, all))?;
        found.outliers.get(to).map(|outlier| outlier.row)
    }

    /// What is to be seen on so many columns and lines of cells.
    fn scene<'a>(&self, common: &'a Common, size: (u16, u16)) -> Scene<'a> {
        Scene::of(common.job.roles(), common.shown_instances(), self.by, size)
    }
}

fn choose(common: &mut Common, row: Option<usize>) {
    if let Some(row) = row {
        common.choose_instance(row);
    }
}

/// What is to be seen.
#[derive(Debug)]
struct Scene<'a> {
    by: By,
    roles: &'a [RoleStatus],
    /// Those that the filter leaves.
    groups: Groups<'a>,
    /// Columns for the names of groups.
    names: u16,
    field: Field,
    /// Who stands out of those that the filter leaves; what is usual follows from all.
    found: Found,
}

impl<'a> Scene<'a> {
    fn of(roles: &'a [RoleStatus], shown: Vec<usize>, by: By, size: (u16, u16)) -> Scene<'a> {
        let groups = Groups::of(roles, shown, by);
        let sizes: Vec<usize> = groups.groups.iter().map(|g| g.count).collect();
        let lengths = groups.groups.iter().map(|g| called(g.name).chars().count());
        let names = lengths.max().map_or(0, |n| (n + 1).min(LONGEST_NAME)) as u16;
        let mut found = Found::among(roles);
        if groups.rows.len() < roles.len() {
            let mut is_shown = vec![false; roles.len()];
            for &row in &groups.rows {
                is_shown[row] = true;
            }
            found.outliers.retain(|outlier| is_shown[outlier.row]);
        }
        Scene {
            by,
            roles,
            field: Field::of(&sizes, names, size),
            groups,
            names,
            found,
        }
    }

    /// Those that a cell stands for, as they stand in the status.
    fn rows(&self, cell: usize) -> &[usize] {
        let cell = self.field.cells().get(cell);
        cell.map_or(&[][..], |cell| &self.groups.rows[cell.places()])
    }

    /// The one of a cell that is shown.
    fn worst(&self, cell: usize) -> Option<usize> {
        self.found.worst(self.rows(cell))
    }

    /// The cell of the instance that stands there in the status.
    fn cell_of(&self, row: usize) -> Option<usize> {
        let place = self.groups.rows.iter().position(|other| *other == row)?;
        self.field.cell_of(place)
    }
}

/// A group by its name.
fn called(name: &str) -> &str {
    match name {
        "" => "no slot",
        name => name,
    }
}
