//! How a weight version spreads: trainer, relays, pullers.
//!
//! The tree is made of who each engine pulls from, or pulled from last; engines that hold weights of
//! which the source is not known stand at the top.
use crate::console::key;
use crate::console::names::TableId;
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::table::{Cell, Column, Spec, Table, figures, words};
use crate::console::ui::look::Look;
use crate::console::ui::{Drawn, line, put, section, split};
use crate::format::{bar, bytes, is_engine, rate, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use robust_proto::v1;
use robust_shared::ids::Role;
use robust_shared::wire::InstanceState;
use std::collections::{BTreeMap, HashMap};

/// The screen.
#[derive(Debug)]
pub struct Weights {
    table: Table<Branch>,
}

impl Default for Weights {
    fn default() -> Self {
        Weights {
            table: Table::new(TableId("weights"), &SPEC),
        }
    }
}

impl Screen for Weights {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        // Several times a second, and not for a table.
        if matches!(input, Input::Look) {
            return Vec::new();
        }
        let tree = common.job.status().map(grow).unwrap_or_default();
        self.table.on(&input, &tree, common);
        Vec::new()
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let Some(s) = common.job.status() else { return };
        let tree = grow(s);
        let title = format!(
            "WEIGHTS v{}, {} a version",
            s.weight_version,
            bytes(s.weight_bytes)
        );
        let inner = section(common.look, area, &title, buf);
        let (top, rest) = split(inner, 2);
        put(buf, top, 0, versions(common, &tree));
        put(buf, line(top, 1), 0, traffic(common, s, &tree));
        let (_, rest) = split(rest, u16::from(rest.height > 6));
        self.table.draw(&tree, common, rest, buf, drawn);
    }

    fn hints<'a>(&'a self, _: &'a Common) -> Hints<'a> {
        Hints {
            own: &[],
            most: &[
                key::SELECT,
                key::FILTER,
                key::SORT,
                key::PALETTE,
                key::HELP,
                key::QUIT,
            ],
            typing: self.table.typing(),
            filter: self.table.filter(),
        }
    }
}

/// A line of the tree.
#[derive(Clone, Debug, PartialEq)]
struct Branch {
    /// How deep.
    depth: usize,
    /// The instance; the gang for the trainer.
    name: String,
    /// The version it holds.
    version: u64,
    /// Behind what is published.
    behind: u64,
    /// Bytes that are there, and of how many.
    got: (u64, u64),
    /// Chunks that are there, and of how many.
    chunks: (u64, u64),
    /// Of the running or last pull.
    bytes_per_s: f64,
    /// Bytes that came more than once.
    again: u64,
    /// How many pull from it directly.
    fed: usize,
    /// `serves`, `pulls v7`, ...
    state: String,
}

/// The table.
static SPEC: Spec<Branch> = Spec {
    columns: &COLUMNS,
    name: |b| b.name.clone(),
    text: |b| format!("{} v{} {}", b.name, b.version, b.state),
};

static COLUMNS: [Column<Branch>; 9] = [
    words("FROM, TO", 22, 0, |b, look| {
        let indent = match b.depth {
            0 => String::new(),
            n => "  ".repeat(n - 1) + look.glyph("└ ", "` "),
        };
        (format!("{indent}{}", b.name), look.strong())
    }),
    figures(
        "VERS",
        6,
        0,
        |b, _| plain(format!("v{}", b.version)),
        |b| b.version as f64,
    ),
    figures(
        "BEHIND",
        6,
        3,
        |b, look| match b.behind {
            0 => ("-".to_owned(), look.faint()),
            n => (n.to_string(), look.strong()),
        },
        |b| b.behind as f64,
    ),
    words("HAS", 12, 2, |b, look| {
        let share = b.got.0 as f64 / b.got.1.max(1) as f64;
        (bar(share, 12, look.ascii), look.accent())
    }),
    figures(
        "BYTES",
        17,
        4,
        |b, _| plain(pair(b.got.0, b.got.1, bytes)),
        |b| b.got.0 as f64,
    ),
    figures(
        "CHUNKS",
        9,
        1,
        |b, _| plain(pair(b.chunks.0, b.chunks.1, |n| n.to_string())),
        |b| b.chunks.0 as f64,
    ),
    figures("RATE", 10, 0, |b, _| plain(speed(b)), |b| b.bytes_per_s),
    figures("FEEDS", 5, 1, |b, _| plain(dash(b.fed)), |b| b.fed as f64),
    words("STATE", 0, 0, |b, look| (b.state.clone(), tone(b, look))),
];

fn plain(text: String) -> Cell {
    (text, Style::new())
}

fn dash(n: usize) -> String {
    if n == 0 {
        "-".to_owned()
    } else {
        n.to_string()
    }
}

fn pair(a: u64, b: u64, show: fn(u64) -> String) -> String {
    match b {
        0 => "-".to_owned(),
        _ => format!("{}/{}", show(a), show(b)),
    }
}

fn speed(b: &Branch) -> String {
    match b.bytes_per_s > 0.0 {
        true => rate(b.bytes_per_s),
        false => "-".to_owned(),
    }
}

fn tone(b: &Branch, look: Look) -> Style {
    let word = match b.state.as_str() {
        "serves" | "publishes" => "running",
        _ => "waiting",
    };
    look.tone(look.tone_of(word))
}

/// The tree of a status, parents before their children.
fn grow(s: &v1::Status) -> Vec<Branch> {
    let engines: Vec<&v1::RoleStatus> = s.roles.iter().filter(|r| is_engine(&r.role)).collect();
    let names: HashMap<String, usize> = engines
        .iter()
        .enumerate()
        .map(|(i, r)| (who(&r.role, r.index), i))
        .collect();
    let mut children: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (i, r) in engines.iter().enumerate() {
        let parent = names.get(&r.pull_source).copied().filter(|&p| p != i);
        children.entry(parent).or_default().push(i);
    }
    let roots = children.get(&None).map_or(0, Vec::len);
    let ranks = s
        .roles
        .iter()
        .filter(|r| r.role() == Some(Role::Trainer))
        .count();
    let mut tree = vec![Branch {
        depth: 0,
        name: format!("trainer ({ranks} ranks)"),
        version: s.weight_version,
        behind: 0,
        got: (s.weight_bytes, s.weight_bytes),
        chunks: (0, 0),
        bytes_per_s: 0.0,
        again: 0,
        fed: roots,
        state: "publishes".to_owned(),
    }];
    let mut placed = vec![false; engines.len()];
    place(None, 1, &children, &engines, s, &mut placed, &mut tree);
    // Two that name each other, as after a change of sources between two looks, hang under none.
    for i in 0..engines.len() {
        if !placed[i] {
            placed[i] = true;
            tree.push(branch(engines[i], 1, 0, s));
        }
    }
    tree
}

fn place(
    parent: Option<usize>,
    depth: usize,
    children: &BTreeMap<Option<usize>, Vec<usize>>,
    engines: &[&v1::RoleStatus],
    s: &v1::Status,
    placed: &mut [bool],
    tree: &mut Vec<Branch>,
) {
    // A chain may be as long as there are engines: no recursion.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let of = |parent| children.get(&parent).map_or(&[][..], Vec::as_slice);
    open.extend(of(parent).iter().rev().map(|&i| (i, depth)));
    while let Some((i, depth)) = open.pop() {
        if std::mem::replace(&mut placed[i], true) {
            continue;
        }
        let fed = of(Some(i));
        tree.push(branch(engines[i], depth, fed.len(), s));
        open.extend(fed.iter().rev().map(|&c| (c, depth + 1)));
    }
}

fn branch(r: &v1::RoleStatus, depth: usize, fed: usize, s: &v1::Status) -> Branch {
    let pulling = r.pull_total > 0 && r.pull_bytes < r.pull_total;
    let state = match (r.state(), pulling) {
        (Some(InstanceState::Down | InstanceState::Recovering), _) => r.state.clone(),
        (_, true) => format!("pulls v{}", r.pull_version),
        (Some(InstanceState::Stale), false) => r.state.clone(),
        (_, false) if r.admitted => "serves".to_owned(),
        _ => "not routed".to_owned(),
    };
    Branch {
        depth,
        name: who(&r.role, r.index),
        version: r.weight_version,
        behind: s.weight_version.saturating_sub(r.weight_version),
        got: (r.pull_bytes, r.pull_total),
        chunks: (r.pull_chunks, r.pull_chunks_total),
        bytes_per_s: r.pull_bytes_per_s,
        again: r.pull_fetched.saturating_sub(r.pull_bytes),
        fed,
        state,
    }
}

/// Which versions are in use.
fn versions(sight: &Sight, tree: &[Branch]) -> Line<'static> {
    let mut held: BTreeMap<u64, usize> = BTreeMap::new();
    for b in tree.iter().filter(|b| b.depth > 0) {
        *held.entry(b.version).or_default() += 1;
    }
    let all: Vec<String> = held
        .iter()
        .rev()
        .map(|(version, n)| format!("v{version} on {n}"))
        .collect();
    let behind = tree.iter().map(|b| b.behind).max().unwrap_or(0);
    let text = match all.as_slice() {
        [] => "no engine yet".to_owned(),
        all => format!("in use: {}; the oldest is {behind} behind", all.join(", ")),
    };
    let text = sight.look.fit(&format!(" {text}"), 190);
    Line::styled(text, sight.look.strong())
}

fn traffic(sight: &Sight, s: &v1::Status, tree: &[Branch]) -> Line<'static> {
    let pulling: Vec<&Branch> = tree
        .iter()
        .filter(|b| b.state.starts_with("pulls"))
        .collect();
    let sum: f64 = pulling.iter().map(|b| b.bytes_per_s).sum();
    let again: u64 = tree.iter().map(|b| b.again).sum();
    let deep = tree.iter().map(|b| b.depth).max().unwrap_or(0);
    let digest = s.weight_digest.get(..12).unwrap_or("-");
    Line::from(vec![
        Span::raw(format!(" {} pull at {} together", pulling.len(), rate(sum))),
        Span::styled(
            format!(
                ", {deep} hops at most, {} came twice; digest {digest}",
                bytes(again)
            ),
            sight.look.faint(),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(index: u32, source: &str) -> v1::RoleStatus {
        v1::RoleStatus {
            role: "rollout".into(),
            index,
            pull_source: source.into(),
            ..Default::default()
        }
    }

    fn shape(roles: Vec<v1::RoleStatus>) -> Vec<(usize, String)> {
        let status = v1::Status {
            roles,
            ..Default::default()
        };
        let tree = grow(&status).into_iter().skip(1);
        tree.map(|b| (b.depth, b.name)).collect()
    }

    #[test]
    fn children_stand_below_their_source() {
        let roles = vec![
            engine(0, "rollout-2"),
            engine(1, "rollout-0"),
            engine(2, "trainer-0"),
            engine(3, ""),
        ];
        let expected = [
            (1, "rollout-2"),
            (2, "rollout-0"),
            (3, "rollout-1"),
            (1, "rollout-3"),
        ];
        assert_eq!(shape(roles), expected.map(|(d, n)| (d, n.to_owned())));
    }

    #[test]
    fn sources_that_go_in_a_circle_lose_no_engine() {
        let roles = vec![
            engine(0, "rollout-1"),
            engine(1, "rollout-0"),
            engine(2, "rollout-2"),
        ];
        let mut names: Vec<_> = shape(roles).into_iter().map(|(_, n)| n).collect();
        names.sort();
        assert_eq!(names, ["rollout-0", "rollout-1", "rollout-2"]);
    }
}
