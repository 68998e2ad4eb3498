//! What the paper says came out, beside what comes out here, with a range over what is assumed.
use super::Row;

/// A workload and mode: without faults, under `task` and under `role`.
#[derive(Clone, Copy, Debug)]
pub struct Triple<'a> {
    /// Without faults.
    pub none: &'a Row,
    /// Any fault restarts everything.
    pub task: &'a Row,
    /// Only the role that failed is restarted.
    pub role: &'a Row,
}

/// One claim.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// What.
    pub what: &'static str,
    /// The paper's figure; none: it is not known here.
    pub paper: Option<&'static str>,
    /// The workload that it is about; none: all.
    pub workload: Option<&'static str>,
    /// Its unit.
    pub unit: &'static str,
    /// What it is here.
    pub figure: fn(Triple<'_>) -> f64,
    /// What is to be said of the difference.
    pub remark: &'static str,
}

/// How much longer than without faults.
fn overhead(none: &Row, row: &Row) -> f64 {
    (row.hours / none.hours - 1.0) * 100.0
}

const fn claim(
    what: &'static str,
    paper: Option<&'static str>,
    unit: &'static str,
    figure: fn(Triple<'_>) -> f64,
    remark: &'static str,
) -> Claim {
    Claim {
        what,
        paper,
        workload: None,
        unit,
        figure,
        remark,
    }
}

const HEADLINE: &str = "8B-Math";

/// Every claim that can be computed, in the order in which they are shown.
pub const CLAIMS: &[Claim] = &[
    Claim {
        workload: Some(HEADLINE),
        ..claim(
            "ETTR, role",
            Some("over 80%"),
            "%",
            |t| t.role.ettr * 100.0,
            "below it as assumed: a restart is several steps long, rollouts are one batch ahead and then nobody works. Of \
             the assumptions only 5 batches ahead with slower engines gives it",
        )
    },
    Claim {
        workload: Some(HEADLINE),
        ..claim(
            "ETTR, task",
            Some("60%"),
            "%",
            |t| t.task.ettr * 100.0,
            "the length of 8B's step was chosen for it (with machines lost): no finding",
        )
    },
    claim(
        "end to end, role faster than task",
        Some("8.4-17.4%"),
        "%",
        |t| (1.0 - t.role.hours / t.task.hours) * 100.0,
        "within it as assumed; least with longer training, most with 5 batches ahead and slower engines",
    ),
    claim(
        "trainer restart, task over role",
        Some("1.5-1.7"),
        "times",
        |t| t.task.recovery_s / t.role.recovery_s,
        "in place only engines and weights are saved (about 50 of 250 s): the paper's ratio takes the 60 s of machines \
         and containers besides",
    ),
    claim(
        "overhead, role",
        Some("under 5%"),
        "%",
        |t| overhead(t.none, t.role),
        "under 5% only where steps are long (32B-SWE), or with 5 batches ahead and slower engines",
    ),
    claim(
        "overhead, task",
        Some("20%"),
        "%",
        |t| overhead(t.none, t.task),
        "it falls with the length of a step",
    ),
    claim(
        "hours saved",
        None,
        "h",
        |t| t.task.hours - t.role.hours,
        "of 100 steps",
    ),
    claim(
        "Fig. 12: lowest mean of 5 minutes, role",
        None,
        "%",
        |t| t.role.lowest * 100.0,
        "from the end of the start on; the paper's is of semi-sync, which the first table has (LOWEST)",
    ),
    claim(
        "Fig. 12: the same, task",
        None,
        "%",
        |t| t.task.lowest * 100.0,
        "0 only where a restart takes five minutes",
    ),
    claim(
        "Fig. 14: detect, role",
        None,
        "s",
        |t| t.role.parts.detect_s,
        "the parts of a recovery here: fault to verdict, to linked, to training again",
    ),
    claim(
        "Fig. 14: restart, role",
        None,
        "s",
        |t| t.role.parts.restart_s,
        "mostly the trainer's start, assumed",
    ),
    claim(
        "Fig. 14: reconnect, role",
        None,
        "s",
        |t| t.role.parts.reconnect_s,
        "loading its state",
    ),
    claim(
        "Fig. 14: restart, task",
        None,
        "s",
        |t| t.task.parts.restart_s,
        "mostly the trainer's start, assumed",
    ),
    claim(
        "Fig. 14: reconnect, task",
        None,
        "s",
        |t| t.task.parts.reconnect_s,
        "engines, weights and a batch",
    ),
    claim(
        "Fig. 15: half of recoveries within, role",
        None,
        "s",
        |t| t.role.parts.half_s,
        "what the figure's distribution is of is not known here; these are faults to training again",
    ),
    claim(
        "Fig. 15: 9 of 10 within, role",
        None,
        "s",
        |t| t.role.parts.most_s,
        "",
    ),
    claim(
        "Fig. 15: half of recoveries within, task",
        None,
        "s",
        |t| t.task.parts.half_s,
        "",
    ),
    claim(
        "Fig. 15: 9 of 10 within, task",
        None,
        "s",
        |t| t.task.parts.most_s,
        "",
    ),
    claim(
        "Fig. 16: recovery in which rollouts generate, role",
        None,
        "%",
        |t| t.role.parts.generating * 100.0,
        "time in place of tokens: this model has no tokens a second",
    ),
    claim(
        "Fig. 16: the same, task",
        None,
        "%",
        |t| t.task.parts.generating * 100.0,
        "",
    ),
];
