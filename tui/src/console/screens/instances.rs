//! The table of instances, which several screens show with one selection, and the keys for the instance
//! that is selected in it.
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
use robust_shared::verbs;

/// The table.
pub fn table() -> Table<RoleStatus> {
    Table::new(TableId("instances"), &SPEC)
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

/// Keys for the selected instance.
pub const KEYS: [Key; 11] = [
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

/// What a key does to the selected instance.
pub fn on_key(key: char, common: &Common) -> Vec<Effect> {
    if key == 'p' {
        return inside::open(Asked::Answers, common);
    }
    let Some(role) = common.chosen_instance() else {
        return match "KHLIDRQSUi".contains(key) {
            true => vec![Effect::refuse("there is no instance selected")],
            false => Vec::new(),
        };
    };
    let ask = |act| ask::open(act, common);
    let strike = |fault| {
        ask(Act::Strike(Strike {
            fault,
            at: None,
            life: Some(Life::from(role)),
            i_know: false,
        }))
    };
    let role_name = role.role.clone();
    vec![match key {
        'K' => strike(Fault::Kill),
        'H' => strike(Fault::Hang),
        'L' => strike(Fault::LoseSlot),
        'I' => menu::open(Some(Life::from(role)), role.node.clone(), common),
        'D' => match common.job.armed_for(role).next() {
            Some(armed) => ask(Act::Disarm(armed.clone())),
            None => {
                let name = who(&role.role, role.index);
                Effect::refuse(format!("no fault waits for {name}"))
            }
        },
        'R' => ask(Act::Restart(Whole::from(role))),
        'Q' => ask(Act::Traffic {
            role: role_name,
            index: role.index,
            out: !role.quarantined,
        }),
        'S' => {
            let all = common.job.roles().iter();
            let from = all.filter(|r| r.role == role.role).count();
            let wanted = Wanted::Scale {
                role: role_name,
                from: u32::try_from(from).unwrap_or(u32::MAX),
            };
            prompt::open(wanted, common)
        }
        'U' => prompt::open(Wanted::Update { role: role_name }, common),
        'i' => {
            let (role, index) = (role_name, role.index);
            return inside::open(Asked::Inside { role, index }, common);
        }
        _ => return Vec::new(),
    }]
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
