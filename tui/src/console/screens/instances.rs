//! The table of instances, which several screens show with one selection, and the keys for the instance
//! that is selected in it, or for all that are marked.
use crate::console::act::{Act, Life, Strike, Whole};
use crate::console::dialogs::prompt::{self, Wanted};
use crate::console::dialogs::{ask, inside, menu};
use crate::console::event::Asked;
use crate::console::key::{self, Key};
use crate::console::names::TableId;
use crate::console::screen::{Effect, Hints};
use crate::console::state::{Common, Sight};
use crate::console::table::{Cell, Column, Spec, Table, figures, words};
use crate::format::{bytes, count, is_engine, millis_tight, who};
use crossterm::event::KeyCode;
use ratatui::style::Style;
use robust_proto::v1::RoleStatus;
use robust_shared::fault::Fault;
use robust_shared::ids::Role;
use robust_shared::verbs;

/// The table.
pub fn table() -> Table<RoleStatus> {
    Table::new(TableId("instances"), &SPEC).markable()
}

const KILL: Key = of('K', "K", "kill", "kill the selected instance");
const FAULT: Key = of(
    'I',
    "I",
    "fault",
    "any fault that befalls the instance, also armed",
);
const RESTART: Key = of(
    'R',
    "R",
    verbs::restart::YES,
    "restart the selected instance, without a fault",
);

/// Said where nothing is to be asked.
const NOTHING: &str = "there is nothing to do";

/// So many are looked into together at most: each is asked after the one before.
const LOOKED_INTO: usize = 8;

/// Keys for the selected instance.
pub const KEYS: [Key; 13] = [
    KILL,
    of('H', "H", "hang", "hang the selected instance"),
    of('L', "L", "lose slot", "kill the instance and lose its slot"),
    FAULT,
    of(
        'D',
        "D",
        "disarm",
        "take back a fault armed for the instance",
    ),
    RESTART,
    of(
        'Q',
        "Q",
        verbs::quarantine::YES,
        "an engine out of traffic, or readmit it",
    ),
    of(
        'S',
        "S",
        verbs::scale::YES,
        "scale the role of the selected instance",
    ),
    of(
        'U',
        "U",
        verbs::update::YES,
        "a new value for the instance's role",
    ),
    of(
        'i',
        "i",
        "inside",
        "threads and stacks of the selected instance, as they are now",
    ),
    of(
        'p',
        "p",
        "probe",
        "ask every role now: who answers, and how fast",
    ),
    key::MARK,
    key::MARK_ALL,
];

const fn of(letter: char, name: &'static str, word: &'static str, does: &'static str) -> Key {
    Key::act(name, KeyCode::Char(letter), word, does)
}

/// What is said of a screen with this table.
pub fn hints(common: &Common) -> Hints<'_> {
    Hints {
        own: &[],
        most: &[
            key::SELECT,
            KILL,
            FAULT,
            RESTART,
            key::PAUSE,
            key::FILTER,
            key::STOP,
            key::PALETTE,
            key::HELP,
            key::QUIT,
        ],
        typing: common.instances().typing(),
        filter: common.instances().filter(),
    }
}

/// Why a key would do nothing to the selected instance.
pub fn refuses(code: KeyCode, common: &Common) -> Option<String> {
    let KeyCode::Char(key) = code else {
        return None;
    };
    on_key(key, common).into_iter().find_map(Effect::refusal)
}

/// What a key does to the marked instances, or to the selected one where none is marked.
pub fn on_key(key: char, common: &Common) -> Vec<Effect> {
    if key == 'p' {
        return inside::open(Asked::Answers, common);
    }
    let mut whom = common.marked_instances();
    if whom.is_empty() {
        whom.extend(common.chosen_instance());
    }
    // What changes a role changes that of the selected one.
    let chosen = common.chosen_instance().or(whom.first().copied());
    let (Some(&first), Some(chosen)) = (whom.first(), chosen) else {
        return match "KHLIDRQSUi".contains(key) {
            true => vec![Effect::refuse("there is no instance selected")],
            false => Vec::new(),
        };
    };
    vec![match key {
        'K' => strike(&Fault::Kill, &whom, common),
        'H' => strike(&Fault::Hang, &whom, common),
        'L' => strike(&Fault::LoseSlot, &whom, common),
        'I' => menu::open(lives(&whom), first.node.clone(), common),
        'D' => disarm(&whom, common),
        'R' => {
            let restarts = once_a_gang(&whom).map(Act::Restart).collect();
            ask::open_all(restarts, NOTHING, common)
        }
        'Q' => turn_traffic(&whom, common),
        'S' => {
            let all = common.job.roles().iter();
            let from = all.filter(|r| r.role == chosen.role).count();
            let wanted = Wanted::Scale {
                role: chosen.role.clone(),
                from: u32::try_from(from).unwrap_or(u32::MAX),
            };
            prompt::open(wanted, common)
        }
        'U' => {
            let role = chosen.role.clone();
            prompt::open(Wanted::Update { role }, common)
        }
        'i' => return look_inside(&whom, common),
        _ => return Vec::new(),
    }]
}

fn lives(whom: &[&RoleStatus]) -> Vec<Life> {
    whom.iter().map(|&r| Life::from(r)).collect()
}

fn strike(fault: &Fault, whom: &[&RoleStatus], sight: &Sight) -> Effect {
    let one = |life| {
        Act::Strike(Strike {
            fault: fault.clone(),
            at: None,
            life: Some(life),
            i_know: false,
        })
    };
    let strikes = lives(whom).into_iter().map(one).collect();
    ask::open_all(strikes, NOTHING, sight)
}

/// A rank takes its gang along, which is restarted once.
fn once_a_gang(whom: &[&RoleStatus]) -> impl Iterator<Item = Whole> {
    let first = whom.iter().position(|r| r.role() == Some(Role::Trainer));
    let kept = move |(at, r): &(usize, &&RoleStatus)| {
        r.role() != Some(Role::Trainer) || Some(*at) == first
    };
    let all = whom.iter().enumerate().filter(kept);
    all.map(|(_, &r)| Whole::from(r))
}

/// Takes back what waits for them: of one instance one fault, as its question names it.
fn disarm(whom: &[&RoleStatus], sight: &Sight) -> Effect {
    let mut armed: Vec<Act> = whom
        .iter()
        .flat_map(|r| sight.job.armed_for(r))
        .map(|armed| Act::Disarm(armed.clone()))
        .collect();
    let none = match whom {
        [r] => {
            armed.truncate(1);
            format!("no fault waits for {}", who(&r.role, r.index))
        }
        _ => "no fault waits for those that are marked".to_owned(),
    };
    ask::open_all(armed, none, sight)
}

/// The engines among them out of traffic as long as one is in it, and then in again.
fn turn_traffic(whom: &[&RoleStatus], sight: &Sight) -> Effect {
    let engines: Vec<&RoleStatus> = whom
        .iter()
        .copied()
        .filter(|r| is_engine(&r.role))
        .collect();
    if engines.is_empty() {
        let why = sight.cannot_act().unwrap_or("only engines have traffic");
        return Effect::refuse(why);
    }
    let out = engines.iter().any(|r| !r.quarantined);
    let turned = engines.iter().filter(|r| r.quarantined != out);
    let act = |r: &&RoleStatus| Act::Traffic {
        role: r.role.clone(),
        index: r.index,
        out,
    };
    ask::open_all(turned.map(act).collect(), NOTHING, sight)
}

fn look_inside(whom: &[&RoleStatus], sight: &Sight) -> Vec<Effect> {
    let name = |r: &RoleStatus| (r.role.clone(), r.index);
    match whom {
        [one] => {
            let (role, index) = name(one);
            inside::open(Asked::Inside { role, index }, sight)
        }
        several if several.len() > LOOKED_INTO => {
            let n = several.len();
            let text = format!("{n} are marked, and {LOOKED_INTO} are looked into at most");
            vec![Effect::refuse(text)]
        }
        several => {
            let whom = several.iter().map(|&r| name(r)).collect();
            inside::open(Asked::InsideOf(whom), sight)
        }
    }
}

/// All there is to say.
static SPEC: Spec<RoleStatus> = Spec {
    columns: &COLUMNS,
    name: |r| who(&r.role, r.index),
    text,
};

static ON_ONE_NODE: Spec<RoleStatus> = Spec {
    columns: COLUMNS.split_at(COLUMNS.len() - 1).0,
    name: |r| who(&r.role, r.index),
    text,
};

/// Where a role is, is worth a column when there is a choice.
pub fn spec(sight: &Sight) -> &'static Spec<RoleStatus> {
    match sight.job.nodes().len() {
        0 | 1 => &ON_ONE_NODE,
        _ => &SPEC,
    }
}

fn text(r: &RoleStatus) -> String {
    let name = who(&r.role, r.index);
    let routed = if r.quarantined { "quarantined" } else { "" };
    format!(
        "{name} {} {} {} {} v{} {routed}",
        r.state, r.phase, r.node, r.slot, r.weight_version
    )
}

static COLUMNS: [Column<RoleStatus>; 16] = [
    words("ROLE", 10, 0, |r, look| {
        (who(&r.role, r.index), look.strong())
    }),
    words("STATE", 13, 0, |r, look| {
        // An operator's hand is worth more than that it runs.
        let state = if r.quarantined {
            "quarantined"
        } else {
            &r.state
        };
        (
            format!("{} {state}", look.sign(state)),
            look.tone(look.tone_of(state)),
        )
    }),
    words("PHASE", 15, 0, |r, _| plain(r.phase.clone())),
    figures(
        "IN IT",
        6,
        0,
        |r, _| plain(millis_tight(r.phase_ms as f64)),
        |r| r.phase_ms as f64,
    ),
    figures(
        "VERS",
        5,
        0,
        |r, _| plain(r.weight_version.to_string()),
        |r| r.weight_version as f64,
    ),
    figures(
        "TOK/S",
        6,
        0,
        |r, _| only_engine(r, count(r.tokens_per_s)),
        |r| r.tokens_per_s,
    ),
    figures(
        "RUN",
        4,
        1,
        |r, _| only_engine(r, r.running.to_string()),
        |r| f64::from(r.running),
    ),
    figures(
        "STEP",
        6,
        4,
        |r, _| plain(r.step_ms.map_or_else(dash, |ms| millis_tight(ms as f64))),
        |r| r.step_ms.unwrap_or(0) as f64,
    ),
    figures(
        "CPU",
        5,
        2,
        |r, _| plain(format!("{:.0}%", r.cpu_percent)),
        |r| r.cpu_percent,
    ),
    figures(
        "GPU",
        5,
        4,
        |r, _| plain(r.gpu_percent.map_or_else(dash, |p| format!("{p:.0}%"))),
        |r| r.gpu_percent.unwrap_or(-1.0),
    ),
    figures(
        "RSTRT",
        5,
        3,
        |r, look| {
            let style = if r.restarts > 0 {
                look.strong()
            } else {
                look.faint()
            };
            (r.restarts.to_string(), style)
        },
        |r| f64::from(r.restarts),
    ),
    figures(
        "MEMORY",
        8,
        5,
        |r, _| plain(bytes(r.rss_bytes)),
        |r| r.rss_bytes as f64,
    ),
    figures(
        "GPU MEM",
        8,
        6,
        |r, _| plain(r.gpu_memory_bytes.map_or_else(dash, bytes)),
        |r| r.gpu_memory_bytes.unwrap_or(0) as f64,
    ),
    figures(
        "PID",
        8,
        7,
        |r, look| (r.pid.to_string(), look.faint()),
        |r| f64::from(r.pid),
    ),
    figures(
        "INCARN",
        6,
        8,
        |r, look| (r.incarnation.to_string(), look.faint()),
        |r| r.incarnation as f64,
    ),
    words("NODE", 7, 1, |r, _| plain(r.node.clone())),
];

fn dash() -> String {
    "-".to_owned()
}

fn plain(text: String) -> Cell {
    (text, Style::new())
}

fn only_engine(r: &RoleStatus, text: String) -> Cell {
    plain(if is_engine(&r.role) {
        text
    } else {
        "-".to_owned()
    })
}
