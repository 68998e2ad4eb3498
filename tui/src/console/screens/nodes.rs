//! Machines: their slots, labels and who runs there.
use crate::console::act::{Act, Whole};
use crate::console::dialogs::{ask, menu};
use crate::console::job::Job;
use crate::console::key::{self, Key};
use crate::console::names::TableId;
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::table::{Cell, Column, Spec, Table, figures, words};
use crate::console::ui::look::{Look, Tone};
use crate::console::ui::scroll::Scroll;
use crate::console::ui::{Drawn, put, section, split};
use crate::format::{bytes, faults, who};
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use robust_proto::v1::{NodeStatus, RoleStatus, Slot};
use robust_shared::ids::Role;
use robust_shared::verbs;

/// Its keys.
const KEYS: [Key; 6] = [
    CORDON,
    DRAIN,
    Key::act(
        "I",
        KeyCode::Char('I'),
        "node fault",
        "faults of the node, the leader and its store",
    ),
    RESTORE,
    key::MARK,
    key::MARK_ALL,
];
const CORDON: Key = Key::act(
    "C",
    KeyCode::Char('C'),
    verbs::cordon::YES,
    "cordon the selected node, or uncordon it",
);
const DRAIN: Key = Key::act(
    "D",
    KeyCode::Char('D'),
    "drain",
    "cordon the node, restart its instances elsewhere",
);
const RESTORE: Key = Key::act(
    "R",
    KeyCode::Char('R'),
    "restore slot",
    "restore the node's first lost slot",
);

/// The screen.
#[derive(Debug)]
pub struct Nodes {
    table: Table<NodeStatus>,
    /// Of the details.
    scroll: Scroll,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            table: Table::new(TableId("nodes"), &SPEC).markable(),
            scroll: Scroll::default(),
        }
    }
}

impl Nodes {
    /// What a key does to the marked nodes, or to the selected one where none is marked.
    fn on_key(&self, key: char, sight: &Sight) -> Vec<Effect> {
        let mut whom = self.table.marked(sight.job.nodes());
        if whom.is_empty() {
            whom.extend(self.table.chosen(sight.job.nodes(), sight.look));
        }
        let Some(&first) = whom.first() else {
            return match "CDIR".contains(key) {
                true => vec![Effect::refuse("there is no node selected")],
                false => Vec::new(),
            };
        };
        vec![match key {
            'C' => cordon(&whom, sight),
            'D' => drain(&whom, sight),
            'I' if whom.len() > 1 => Effect::refuse("a node fault strikes one node: Esc unmarks"),
            'I' => menu::open(Vec::new(), first.name.clone(), sight),
            'R' => restore(&whom, sight),
            _ => return Vec::new(),
        }]
    }
}

/// Nothing new on them as long as one may have something, and then again.
fn cordon(whom: &[&NodeStatus], sight: &Sight) -> Effect {
    let out = whom.iter().any(|n| !n.cordoned);
    let turned = whom.iter().filter(|n| n.cordoned != out);
    let act = |n: &&NodeStatus| Act::Cordon {
        node: n.name.clone(),
        out,
    };
    ask::open_all(turned.map(act).collect(), "there is nothing to do", sight)
}

fn drain(whom: &[&NodeStatus], sight: &Sight) -> Effect {
    let mut names: Vec<String> = whom.iter().map(|n| n.name.clone()).collect();
    // What a node was cordoned for by itself, an operator makes his own word; what is his word already would be refused.
    let open = whom.iter().filter(|n| !n.cordoned || n.cordoned_for_faults);
    let open: Vec<String> = open.map(|n| n.name.clone()).collect();
    let moved = movable(&sight.job, &names);
    if open.is_empty() && moved.is_empty() {
        let why =
            "there is nothing to do: it is cordoned already, and no instance has a slot there";
        return Effect::refuse(why);
    }
    let act = match (names.len(), names.pop()) {
        (1, Some(node)) => Act::Drain {
            node,
            cordoned: open.is_empty(),
            whom: moved,
        },
        (_, last) => {
            names.extend(last);
            Act::drain_all(names, open, moved)
        }
    };
    ask::open(act, sight)
}

/// The first lost slot of each.
fn restore(whom: &[&NodeStatus], sight: &Sight) -> Effect {
    let lost = whom.iter().filter_map(|n| n.lost.first());
    let acts = lost.map(|slot| Act::Restore(slot.clone())).collect();
    let none = match whom {
        [node] => format!("no slot of {} is lost", node.name),
        _ => "no slot of those that are marked is lost".to_owned(),
    };
    ask::open_all(acts, none, sight)
}

/// What has to be restarted so that nothing is left on these nodes; a gang once.
fn movable(job: &Job, nodes: &[String]) -> Vec<Whole> {
    let here = job.roles().iter().filter(|r| nodes.contains(&r.node));
    let mut gang = false;
    here.filter(|r| r.role() != Some(Role::Trainer) || !std::mem::replace(&mut gang, true))
        .map(Whole::from)
        .collect()
}

impl Screen for Nodes {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        if matches!(input, Input::OtherJob) {
            self.table.unmark();
            return Vec::new();
        }
        self.table.heard(common.job.nodes());
        if let Some(turned) = self.table.on(&input, common.job.nodes(), common) {
            self.scroll.follow(turned);
            return Vec::new();
        }
        match input {
            _ if self.scroll.on(&input) => Vec::new(),
            Input::Key(KeyCode::Char(key)) => self.on_key(key, common),
            _ => Vec::new(),
        }
    }

    /// Table and details, below the controllers where there are several.
    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let all = common.job.nodes();
        let controllers = controllers(common);
        let height = u16::try_from(controllers.len()).unwrap_or(0);
        let [above, area] =
            Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area);
        for (row, line) in (0..).zip(controllers) {
            put(buf, above, row, line);
        }
        let rows = (all.len() as u16).saturating_add(1);
        let (above, below) = split(area, rows.clamp(3, (area.height / 2).max(3)));
        self.table.draw(all, common, above, buf, drawn);
        let Some(node) = self.table.chosen(all, common.look) else {
            return;
        };
        let inner = section(common.look, below, &format!("NODE {}", node.name), buf);
        let lines = lines(common, node);
        self.scroll.draw(lines, common.look, inner, buf, drawn);
    }

    fn hints<'a>(&'a self, _: &'a Common) -> Hints<'a> {
        Hints {
            own: &[&KEYS],
            most: &[
                key::SELECT,
                CORDON,
                DRAIN,
                RESTORE,
                key::FILTER,
                key::PALETTE,
                key::HELP,
                key::QUIT,
            ],
            typing: self.table.typing(),
            filter: self.table.filter(),
        }
    }

    fn marked(&self, _: &Common) -> usize {
        self.table.marked_count()
    }

    fn refuses(&self, code: KeyCode, common: &Common) -> Option<String> {
        let KeyCode::Char(key) = code else {
            return None;
        };
        let effects = self.on_key(key, common);
        effects.into_iter().find_map(Effect::refusal)
    }
}

/// The table.
static SPEC: Spec<NodeStatus> = Spec {
    columns: &COLUMNS,
    name: |n| n.name.clone(),
    text: |n| {
        let cordoned = if n.cordoned { "cordoned" } else { "" };
        format!(
            "{} {} {cordoned} {} {} {}",
            n.name, n.state, n.dc, n.rack, n.accel
        )
    },
};

static COLUMNS: [Column<NodeStatus>; 10] = [
    words("NODE", 16, 0, |n, look| (n.name.clone(), look.strong())),
    words("STATE", 12, 0, |n, look| {
        let word = if n.cordoned { "cordoned" } else { &n.state };
        (
            format!("{} {word}", look.sign(word)),
            look.tone(look.tone_of(word)),
        )
    }),
    figures(
        "SLOTS",
        5,
        0,
        |n, _| plain(slots(n).to_string()),
        |n| f64::from(slots(n)),
    ),
    figures(
        "USED",
        5,
        0,
        |n, _| plain(n.instances.to_string()),
        |n| f64::from(n.instances),
    ),
    figures(
        "LOST",
        4,
        1,
        |n, look| number(n.lost.len(), look),
        |n| n.lost.len() as f64,
    ),
    figures(
        "DRAIN",
        5,
        2,
        |n, look| number(n.draining.len(), look),
        |n| n.draining.len() as f64,
    ),
    figures(
        "FAULTS",
        6,
        1,
        |n, look| number(n.faults as usize, look),
        |n| f64::from(n.faults),
    ),
    words("DC", 10, 3, |n, _| plain(n.dc.clone())),
    words("RACK", 10, 4, |n, _| plain(n.rack.clone())),
    words("ACCEL", 0, 3, |n, _| plain(n.accel.clone())),
];

fn plain(text: String) -> Cell {
    (text, Style::new())
}

fn number(n: usize, look: Look) -> Cell {
    match n {
        0 => ("-".to_owned(), look.faint()),
        n => (n.to_string(), look.tone(Tone::Bad)),
    }
}

fn slots(n: &NodeStatus) -> u32 {
    n.pools.values().sum()
}

/// Who leads, and how that came about.
fn controllers(sight: &Sight) -> Vec<Line<'static>> {
    let look = sight.look;
    let status = sight.job.status();
    let Some(of) = status.and_then(|status| status.controllers.as_ref()) else {
        return Vec::new();
    };
    let said = [
        ("control", Some(crate::controllers::who(of))),
        ("lacks", crate::controllers::lacking(of)),
        ("takeover", crate::controllers::takeover(of)),
    ];
    let line = |(name, text): (&str, Option<String>)| {
        let name = Span::styled(format!(" {name:<9}"), look.faint());
        Some(Line::from(vec![name, Span::raw(text?)]))
    };
    said.into_iter().filter_map(line).collect()
}

fn lines(sight: &Sight, n: &NodeStatus) -> Vec<Line<'static>> {
    let look = sight.look;
    let fact = |name: &str, value: String| {
        Line::from(vec![
            Span::styled(format!(" {name:<10} "), look.faint()),
            Span::raw(value),
        ])
    };
    let dash = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text.to_owned()
        }
    };
    let mut pools: Vec<String> = n
        .pools
        .iter()
        .map(|(pool, slots)| format!("{pool} x{slots}"))
        .collect();
    pools.sort();
    let mut lines = vec![
        fact("pools", dash(&pools.join(", "))),
        fact(
            "labels",
            format!(
                "dc {}, rack {}, accel {}",
                dash(&n.dc),
                dash(&n.rack),
                dash(&n.accel)
            ),
        ),
    ];
    lines.extend(load(sight, n).map(|text| fact("load", text)));
    if n.cordoned {
        let why = match n.cordoned_for_faults {
            true => {
                "for its faults: nothing new is started here unless somebody has no other place"
            }
            false => "nothing new is started here",
        };
        lines.push(fact("cordoned", why.to_owned()));
    }
    if n.last_fault_ms > 0 {
        let now_ms = sight.job.status().map_or(0, |s| s.now_ms);
        lines.push(fact("faults", faults(n, now_ms)));
    }
    let some = [("lost", &n.lost), ("draining", &n.draining)];
    for (name, slots) in some.into_iter().filter(|(_, slots)| !slots.is_empty()) {
        let slots: Vec<String> = slots.iter().map(slot).collect();
        lines.push(fact(name, slots.join(", ")));
    }
    let here = sight.job.roles().iter().filter(|r| r.node == n.name);
    for (i, r) in here.enumerate() {
        let name = who(&r.role, r.index);
        let text = format!(
            "{name:<11} {:<9} {} {:<11} {:<15} {:>4.0}% {:>8}",
            look.fit(&r.slot, 9),
            look.sign(&r.state),
            r.state,
            r.phase,
            r.cpu_percent,
            bytes(r.rss_bytes)
        );
        lines.push(fact(if i == 0 { "instances" } else { "" }, text));
    }
    lines
}

/// What the instances of a node take of it together.
fn load(sight: &Sight, n: &NodeStatus) -> Option<String> {
    let here: Vec<_> = sight
        .job
        .roles()
        .iter()
        .filter(|r| r.node == n.name)
        .collect();
    if here.is_empty() {
        return None;
    }
    let sum = |of: fn(&RoleStatus) -> u64| bytes(here.iter().map(|r| of(r)).sum());
    let mut parts = vec![
        format!(
            "cpu {:.0}%",
            here.iter().map(|r| r.cpu_percent).sum::<f64>()
        ),
        format!("memory {}", sum(|r| r.rss_bytes)),
        format!(
            "disk {} read, {} written",
            sum(|r| r.disk_read_bytes),
            sum(|r| r.disk_write_bytes)
        ),
    ];
    let busy: Vec<f64> = here.iter().filter_map(|r| r.gpu_percent).collect();
    if !busy.is_empty() {
        parts.push(format!(
            "gpu {:.0}%",
            busy.iter().sum::<f64>() / busy.len() as f64
        ));
    }
    let heat = here.iter().filter_map(|r| r.gpu_celsius).max();
    parts.extend(heat.map(|c| format!("{c} C")));
    Some(parts.join(", "))
}

fn slot(s: &Slot) -> String {
    format!("{} {}", s.pool, s.index)
}
