//! Which instances each cell of the screen stands for. It follows from the sizes of the groups and of the area alone, so that
//! an instance keeps its cell whatever becomes of it.
//!
//! ```text
//!  named, wrapped       named, side by side               plain              joined
//!  trainer UUUUUUUU     node-0 GGGGGGGG  node-1 GGGGGGGG  GGGGGGGG GGGGGGGG  GGGGGGGGGGGGGGGGG
//!  rollout GGGGGGGGGGG  node-2 GGGGGGGG  node-3 GGGGGGGG  GGGGGGGG GGGGGGGG  GGGGGGGGGGGGGGGGG
//!          GGGGGG
//! ```
//! A cell is one instance where they fit, else several of one group (named, plain) or, where there are more groups than cells,
//! several whole groups (joined).
use std::ops::Range;

/// Between two groups side by side.
const GAP: usize = 2;
/// How many times as many instances a cell may stand for so that there is room for the names of groups.
const NAMES_ARE_WORTH: usize = 2;

/// A place on the screen, and whom it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// From the left edge of the area.
    pub x: u16,
    /// From its upper edge.
    pub y: u16,
    first: usize,
    count: usize,
}

impl Cell {
    /// Those it stands for, by their places in the order of all.
    pub fn places(&self) -> Range<usize> {
        self.first..self.first + self.count
    }
}

/// Where the name of a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// From the left edge of the area.
    pub x: u16,
    /// From its upper edge.
    pub y: u16,
    /// Which one.
    pub group: usize,
}

/// How groups are laid out; `each` is how many instances a cell stands for at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// Each group behind its name, in lines of so many cells, so many groups side by side.
    Named {
        each: usize,
        cells: usize,
        columns: usize,
    },
    /// One behind the other, with a blank between two groups where there is room for them.
    Plain { each: usize, blank: bool },
    /// Several whole groups in a cell.
    Joined { groups: usize },
}

/// All cells of a fleet.
#[derive(Debug, Default)]
pub struct Field {
    /// In the order of their instances.
    cells: Vec<Cell>,
    labels: Vec<Label>,
    joined: usize,
}

/// What there is room for.
#[derive(Clone, Copy, Debug)]
struct Room {
    width: usize,
    height: usize,
    /// Columns of the names of groups, the space behind them among these.
    names: usize,
}

impl Field {
    /// Of groups of these sizes, whose names want so many columns, on so many columns and lines.
    pub fn of(sizes: &[usize], names: u16, (width, height): (u16, u16)) -> Field {
        let room = Room {
            width: width.into(),
            height: height.into(),
            names: names.into(),
        };
        match room.plan(sizes) {
            None => Field::default(),
            Some(Plan::Named {
                each,
                cells,
                columns,
            }) => named(sizes, room, (each, cells, columns)),
            Some(Plan::Plain { each, blank }) => plain(sizes, room, each, blank),
            Some(Plan::Joined { groups }) => joined(sizes, room, groups),
        }
    }

    /// All cells.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Where names of groups stand.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// The cell of the instance at this place in the order of all.
    pub fn cell_of(&self, place: usize) -> Option<usize> {
        let behind = self.cells.partition_point(|cell| cell.first <= place);
        let found = behind.checked_sub(1)?;
        self.cells[found].places().contains(&place).then_some(found)
    }

    /// The cell that lies there.
    pub fn at(&self, x: u16, y: u16) -> Option<usize> {
        self.cells.iter().position(|c| (c.x, c.y) == (x, y))
    }

    /// The cell so many places further in the order, or the last one.
    pub fn along(&self, from: usize, by: isize) -> Option<usize> {
        let last = self.cells.len().checked_sub(1)?;
        Some(from.saturating_add_signed(by).min(last))
    }

    /// The cell so many lines further down: of that line the nearest.
    pub fn down(&self, from: usize, by: isize) -> Option<usize> {
        let here = self.cells.get(from)?;
        let by = by.clamp(-isize::from(i16::MAX), isize::from(i16::MAX)) as i16;
        let line = here.y.saturating_add_signed(by);
        let line = line.min(self.lines().saturating_sub(1));
        let there = self.cells.iter().enumerate().filter(|(_, c)| c.y == line);
        let nearest = there.min_by_key(|(_, c)| c.x.abs_diff(here.x));
        nearest.map(|(number, _)| number)
    }

    /// How many lines it takes.
    pub fn lines(&self) -> u16 {
        self.cells.iter().map(|c| c.y + 1).max().unwrap_or(0)
    }

    /// How many instances a cell stands for at most.
    pub fn most(&self) -> usize {
        self.cells.iter().map(|c| c.count).max().unwrap_or(0)
    }

    /// How many whole groups a cell stands for at most; 0 where none stands for two.
    pub fn joined(&self) -> usize {
        self.joined
    }
}

impl Room {
    fn cells(self) -> usize {
        self.width * self.height
    }

    /// The plan by which a cell stands for the fewest instances, or for a few more where the names of groups stand then.
    fn plan(self, sizes: &[usize]) -> Option<Plan> {
        let (groups, all) = (sizes.len(), sizes.iter().sum::<usize>());
        if all == 0 || self.cells() == 0 {
            return None;
        }
        if groups > self.cells() {
            let groups = groups.div_ceil(self.cells());
            return Some(Plan::Joined { groups });
        }
        let longest = sizes.iter().copied().max().unwrap_or(1);
        let each =
            |fits: &dyn Fn(usize) -> bool| least((all.div_ceil(self.cells()), longest), fits);
        let taken = |each: usize| sizes.iter().map(|n| n.div_ceil(each)).sum::<usize>();
        let lines = |each| self.block(sizes, each).map(|(_, _, lines)| lines);
        let is_named = |each| lines(each).is_some_and(|lines| lines <= self.height);
        let plain = |blanks: usize| each(&|each| taken(each) + blanks <= self.cells());
        let (named, apart, close) = (each(&is_named), plain(groups - 1), plain(0));
        let fewest = [named, apart, close].into_iter().flatten().min()?;
        if let Some(each) = named.filter(|each| *each <= NAMES_ARE_WORTH * fewest) {
            let (cells, columns, _) = self.block(sizes, each)?;
            return Some(Plan::Named {
                each,
                cells,
                columns,
            });
        }
        let (each, blank) = (fewest, apart == Some(fewest));
        Some(Plan::Plain { each, blank })
    }

    /// Cells in a line of a group behind its name, how many groups stand side by side, and the lines that takes. None where
    /// there is no room beside the names.
    fn block(self, sizes: &[usize], each: usize) -> Option<(usize, usize, usize)> {
        let beside = self.width.checked_sub(self.names).filter(|n| *n > 0)?;
        let longest = sizes.iter().map(|n| n.div_ceil(each)).max()?;
        if longest > beside {
            let lines = sizes.iter().map(|n| n.div_ceil(each).div_ceil(beside));
            return Some((beside, 1, lines.sum()));
        }
        let columns = (self.width + GAP) / (self.names + longest + GAP);
        Some((longest, columns, sizes.len().div_ceil(columns)))
    }
}

/// The least of these numbers for which it holds, where it holds for all that come after one for which it does.
fn least((mut from, mut to): (usize, usize), holds: &dyn Fn(usize) -> bool) -> Option<usize> {
    if from > to || !holds(to) {
        return None;
    }
    while from < to {
        let middle = usize::midpoint(from, to);
        match holds(middle) {
            true => to = middle,
            false => from = middle + 1,
        }
    }
    Some(to)
}

/// A cell at this column and line, both within the area, which is no larger than a screen.
fn cell((x, y): (usize, usize), first: usize, count: usize) -> Cell {
    Cell {
        x: x as u16,
        y: y as u16,
        first,
        count,
    }
}

/// The parts of a group that a cell each stands for: their begin in the order of all, and how many they are.
fn parts(begin: usize, size: usize, each: usize) -> impl Iterator<Item = (usize, usize)> {
    let firsts = (0..size).step_by(each);
    firsts.map(move |first| (begin + first, each.min(size - first)))
}

fn named(sizes: &[usize], room: Room, (each, cells, columns): (usize, usize, usize)) -> Field {
    let mut field = Field::default();
    let (mut begin, mut line) = (0, 0);
    for (group, &size) in sizes.iter().enumerate() {
        let column = group % columns;
        let left = column * (room.names + cells + GAP);
        let label = cell((left, line), begin, size);
        field.labels.push(Label {
            x: label.x,
            y: label.y,
            group,
        });
        for (n, (first, count)) in parts(begin, size, each).enumerate() {
            let place = (left + room.names + n % cells, line + n / cells);
            field.cells.push(cell(place, first, count));
        }
        begin += size;
        if column + 1 == columns {
            line += size.div_ceil(each).div_ceil(cells);
        }
    }
    field
}

fn plain(sizes: &[usize], room: Room, each: usize, blank: bool) -> Field {
    let mut field = Field::default();
    let (mut begin, mut at) = (0, 0);
    for &size in sizes {
        for (first, count) in parts(begin, size, each) {
            let place = (at % room.width, at / room.width);
            field.cells.push(cell(place, first, count));
            at += 1;
        }
        begin += size;
        at += usize::from(blank);
    }
    field
}

fn joined(sizes: &[usize], room: Room, groups: usize) -> Field {
    let mut field = Field {
        joined: groups,
        ..Field::default()
    };
    let mut begin = 0;
    for (at, sizes) in sizes.chunks(groups).enumerate() {
        let size = sizes.iter().sum();
        let place = (at % room.width, at / room.width);
        field.cells.push(cell(place, begin, size));
        begin += size;
    }
    field
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;

    const NAMES: u16 = 8;

    fn of(sizes: &[usize], area: (u16, u16)) -> Field {
        Field::of(sizes, NAMES, area)
    }

    fn fleets() -> Vec<Vec<usize>> {
        vec![
            vec![],
            vec![1],
            vec![2, 8, 2],
            vec![8, 200, 92],
            vec![8, 8_742, 1_250],
            vec![8; 38],
            vec![8; 1_250],
            vec![1; 4_000],
            [vec![9_000], vec![1; 900]].concat(),
        ]
    }

    const AREAS: [(u16, u16); 9] = [
        (0, 0),
        (1, 1),
        (8, 3),
        (9, 2),
        (58, 3),
        (78, 10),
        (118, 23),
        (198, 45),
        (500, 200),
    ];

    #[test]
    fn every_instance_has_one_cell_and_no_two_cells_lie_at_one_place() {
        for sizes in fleets() {
            let all: usize = sizes.iter().sum();
            for area in AREAS.into_iter().skip(1) {
                let field = of(&sizes, area);
                let places = field.cells().iter().flat_map(Cell::places);
                assert!(places.eq(0..all), "{sizes:?} on {area:?}");
                let spots: BTreeSet<_> = field.cells().iter().map(|c| (c.x, c.y)).collect();
                assert_eq!(spots.len(), field.cells().len(), "{sizes:?} on {area:?}");
                let within = |&(x, y): &(u16, u16)| x < area.0 && y < area.1;
                assert!(spots.iter().all(within), "{sizes:?} on {area:?}");
                let mut labels = field.labels().iter().map(|l| (l.x, l.y));
                assert!(labels.all(|l| within(&l) && !spots.contains(&l)));
                for place in (0..all).step_by(7) {
                    let found = field.cell_of(place).unwrap();
                    assert!(field.cells()[found].places().contains(&place));
                }
                assert_eq!(field.cell_of(all), None);
            }
            assert!(of(&sizes, (0, 0)).cells().is_empty());
        }
    }

    #[test]
    fn a_cell_stands_for_as_few_as_there_is_room_for() {
        let most = |sizes: &[usize], area| of(sizes, area).most();
        assert_eq!(most(&[2, 8, 2], (78, 10)), 1);
        assert_eq!(most(&[8, 200, 92], (78, 10)), 1);
        assert_eq!(most(&[8, 200, 92], (58, 3)), 4, "three lines of 50");
        assert_eq!(most(&[8; 1_250], (118, 23)), 4, "two cells a node");
        assert_eq!(most(&[8; 1_250], (78, 10)), 16, "two nodes a cell");
    }

    #[test]
    fn names_stand_where_no_cell_needs_their_place() {
        assert_eq!(of(&[8; 38], (78, 10)).labels().len(), 38);
        let label = of(&[8; 38], (78, 10)).labels()[5];
        assert_eq!((label.x, label.y, label.group), (18, 1, 5));
        assert_eq!(of(&[8; 1_250], (118, 23)).labels().len(), 0);
        let wrapped = of(&[8, 200, 92], (78, 10));
        let lines = wrapped.labels().iter().map(|l| l.y);
        assert_eq!(lines.collect::<Vec<_>>(), [0, 1, 4]);
        assert_eq!(wrapped.lines(), 6);
    }

    #[test]
    fn groups_without_names_stand_apart_where_there_is_room() {
        // Two groups of 3 on 8 columns: no room beside names of 8.
        let apart: Vec<u16> = of(&[3, 3], (8, 1)).cells().iter().map(|c| c.x).collect();
        assert_eq!(apart, [0, 1, 2, 4, 5, 6]);
        let close: Vec<u16> = of(&[3, 3], (6, 1)).cells().iter().map(|c| c.x).collect();
        assert_eq!(close, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn more_groups_than_cells_share_them_whole() {
        let field = of(&[8; 1_250], (78, 10));
        assert_eq!((field.joined(), field.cells().len()), (2, 625));
        assert!(field.cells().iter().all(|c| c.places().start % 8 == 0));
        assert_eq!(of(&[8; 38], (78, 10)).joined(), 0);
    }

    #[test]
    fn a_cursor_goes_along_and_up_and_down_and_stays_within() {
        let field = of(&[2, 130, 2], (78, 10));
        assert_eq!(field.along(0, -1), Some(0));
        assert_eq!(field.along(0, 1), Some(1));
        assert_eq!(field.along(5, isize::MAX), Some(133));
        // The second line begins with cell 2, 70 wide; the third holds the rest of the 130.
        assert_eq!(field.down(1, 1), Some(3));
        assert_eq!(field.down(3, 1), Some(73));
        assert_eq!(
            field.down(71, 1),
            Some(131),
            "the nearest of a shorter line"
        );
        assert_eq!(field.down(73, isize::MIN), Some(1));
        assert_eq!(field.down(0, isize::MAX), Some(132));
        assert_eq!(field.at(8, 1), Some(2));
        assert_eq!(field.at(0, 1), None);
        assert_eq!(Field::default().along(0, 1), None);
        assert_eq!(Field::default().down(0, 1), None);
    }
}
