//! The report for a terminal of 80 columns.
use super::run::{Came, Run, whom};
use crate::cascade;
use crate::commands::promises;
use crate::format::{bytes, clock, cut, millis, rate, ratio, time_of_day};
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1;
use robust_shared::printable::one_line as printable;

/// Columns of a curve.
const WIDTH: usize = 68;
/// Columns of a line.
const LINE: usize = 80;
/// Incidents that are listed.
const INCIDENTS: usize = 20;

/// All of it.
pub fn report(run: &Run<'_>, paint: Paint, ascii: bool) -> String {
    let mut text = summary(run, paint);
    for part in [
        curves(run, ascii),
        causes(run, paint),
        phases(run),
        transfers(run, paint),
        incidents(run, paint),
        hosting(run, paint),
    ] {
        if !part.is_empty() {
            text = text + "\n" + &part;
        }
    }
    text
}

fn summary(run: &Run<'_>, paint: Paint) -> String {
    let r = run.report;
    let gain = if r.reward_first > 0.0 {
        format!(", {:.2} times", r.reward_last / r.reward_first)
    } else {
        String::new()
    };
    let mean = match run.recovered() {
        (0, _) => String::new(),
        (count, mean) => format!(", {count} recovered in {} on average", millis(mean)),
    };
    let mut text = format!(
        "{}  mode {}, policy {}, {}\n\
         steps      {} in {}\n\
         reward     {} first 20 steps, {} last 20 steps{gain}\n\
         ettr       {} overall, goodput {}\n\
         generated  {} tokens in {} trajectories{}\n\
         incidents  {}{}{mean}\n",
        paint.bold(&printable(&r.job)),
        printable(&r.mode),
        printable(&r.policy),
        paint.word(&printable(&r.state)),
        r.steps,
        clock(r.duration_s),
        ratio(r.reward_first),
        ratio(r.reward_last),
        ratio(r.ettr),
        ratio(r.goodput),
        r.tokens,
        r.trajectories,
        match r.trajectories_stale {
            0 => String::new(),
            stale => format!(", {stale} more were too old to train on"),
        } + &match r.trajectories_given_back {
            0 => String::new(),
            back => format!(", {back} times given back: a tool failed, no sample"),
        },
        run.incidents_total(),
        run.incidents_folded(),
    );
    if !r.reason.is_empty() {
        text += &format!("reason     {}\n", printable(&r.reason));
    }
    text
}

/// Sliding ETTR and goodput from 0 to 1, the reward between its own bounds, and the faults below.
fn curves(run: &Run<'_>, ascii: bool) -> String {
    let curve = &run.history.curve;
    if curve.is_empty() {
        return String::new();
    }
    let figure = |of: fn(&v1::CurvePoint) -> f64| {
        let at = |p: &v1::CurvePoint| (run.since_begin(p.at_ms) / run.seconds(), of(p));
        spark(curve.iter().map(at), (0.0, 1.0), ascii)
    };
    let steps = &run.history.steps;
    let rewards = steps.iter().map(|s| s.reward).filter(|r| r.is_finite());
    let bounds = rewards.fold((0.0_f64, 1e-9_f64), |(low, high), r| {
        (low.min(r), high.max(r))
    });
    let reward = steps
        .iter()
        .map(|s| (run.since_begin(s.at_ms) / run.seconds(), s.reward));
    let mut text = format!(
        "ettr       {}\ngoodput    {}\nreward     {}\n",
        figure(|p| p.ettr_sliding),
        figure(|p| p.goodput_sliding),
        spark(reward, bounds, ascii),
    );
    if !run.report.incidents.is_empty() {
        text += &format!("faults     {}\n", marks(run));
    }
    let end = clock(run.seconds());
    let scale = format!("0s{end:>width$}", width = WIDTH - 2);
    text + &format!("           {scale}\n           ettr and goodput: 0 to 1, mean over 5 min\n")
}

/// A value a column, the last that falls into it; columns before the first are empty.
fn spark(points: impl Iterator<Item = (f64, f64)>, (low, high): (f64, f64), ascii: bool) -> String {
    let bars: Vec<char> = match ascii {
        true => "_.:-=+*#".chars().collect(),
        false => "▁▂▃▄▅▆▇█".chars().collect(),
    };
    let mut columns = [None; WIDTH];
    for (at, value) in points.filter(|(_, value)| value.is_finite()) {
        let column = (at.clamp(0.0, 1.0) * WIDTH as f64) as usize;
        columns[column.min(WIDTH - 1)] = Some(value);
    }
    let mut last = None;
    let bar = |value: Option<f64>| {
        last = value.or(last);
        last.map_or(' ', |value: f64| {
            let height = ((value - low) / (high - low)).clamp(0.0, 1.0);
            bars[(height * (bars.len() - 1) as f64).round() as usize]
        })
    };
    columns.into_iter().map(bar).collect()
}

/// The last digit of each incident's number where its fault struck.
fn marks(run: &Run<'_>) -> String {
    let mut line = vec![' '; WIDTH];
    for (id, at) in run.faults() {
        let column = (at / run.seconds() * WIDTH as f64) as usize;
        line[column.min(WIDTH - 1)] = char::from_digit((id % 10) as u32, 10).unwrap_or('*');
    }
    line.into_iter().collect::<String>().trim_end().to_owned()
}

fn causes(run: &Run<'_>, paint: Paint) -> String {
    let mut table = Table::new(&["WHERE THE TIME WENT", ">TIME", ">SHARE"]);
    for (cause, seconds, share, _) in run.causes() {
        table.row([
            printable(cause),
            millis(seconds * 1e3),
            format!("{:.1}%", share * 100.0),
        ]);
    }
    match run.history.causes.is_empty() {
        true => String::new(),
        false => table.render(paint),
    }
}

fn phases(run: &Run<'_>) -> String {
    let line = |(role, phases): (&str, Vec<(&str, f64)>)| {
        let most = phases.iter().filter(|(_, share)| *share >= 0.005);
        let most = most.map(|(phase, share)| format!("{phase} {:.0}%", share * 100.0));
        let most: Vec<_> = most.collect();
        cut(&format!("{role:<10} {}", most.join(", ")), LINE) + "\n"
    };
    run.phases().into_iter().map(line).collect()
}

fn transfers(run: &Run<'_>, paint: Paint) -> String {
    let mut table = Table::new(&[
        "MOVED", ">DONE", ">FAILED", ">BYTES", ">MEAN", ">SLOWEST", ">RATE",
    ]);
    for t in &run.history.transfers {
        table.row([
            printable(&t.kind),
            t.done.to_string(),
            t.failed.to_string(),
            bytes(t.bytes),
            millis(t.took_ms as f64 / t.done.max(1) as f64),
            millis(t.slowest_ms as f64),
            rate(t.bytes as f64 / (t.took_ms.max(1) as f64 / 1e3)),
        ]);
    }
    match run.history.transfers.is_empty() {
        true => String::new(),
        false => table.render(paint) + &run.history.transfers.iter().map(came).collect::<String>(),
    }
}

/// By which roads pulls came, and what of them did not have to.
fn came(t: &v1::TransferSum) -> String {
    let Some(came) = Came::of(t) else {
        return String::new();
    };
    let (sent, all) = (bytes(t.sent), bytes(t.pulled));
    let share = came.saved as f64 / t.pulled.max(1) as f64 * 100.0;
    let saved = (came.saved > 0).then(|| format!(" ({share:.1} % saved)"));
    let changed = came.changed.map(|part| {
        let percent = part * 100.0;
        format!("; {percent:.2} % of the words changed")
    });
    let (saved, changed) = (saved.unwrap_or_default(), changed.unwrap_or_default());
    let (kind, roads) = (printable(&t.kind), came.roads);
    format!("{kind}: {roads}\n  {sent} of {all} sent{saved}{changed}\n")
}

/// The newest, each with its rule and reason below it.
fn incidents(run: &Run<'_>, paint: Paint) -> String {
    let all = &run.report.incidents;
    let newest = &all[all.len().saturating_sub(INCIDENTS)..];
    let shown: Vec<_> = cascade::firsts(newest).collect();
    if newest.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ">ID",
        ">AT",
        "ROLE",
        ">DETECT",
        ">RESTART",
        ">RECONNECT",
        ">TOTAL",
        "OUTCOME",
    ]);
    for i in &shown {
        table.row([
            i.id.to_string(),
            run.elapsed(i.at_ms),
            printable(&whom(i)),
            millis(i.detect_ms),
            millis(i.restart_ms),
            millis(i.reconnect_ms),
            millis(i.total_ms),
            printable(&i.outcome),
        ]);
    }
    let rendered = table.render(paint);
    let mut lines = rendered.lines();
    let mut text = lines.next().unwrap_or_default().to_owned() + "\n";
    for (line, i) in lines.zip(&shown) {
        let reason = format!("    {}: {}", i.rule, i.reason);
        text += &format!("{line}\n{}\n", cut(&reason, LINE));
        if !i.root.is_empty() {
            text += &format!("{}\n", cut(&format!("    root: {}", i.root), LINE));
        }
        for note in &i.notes {
            text += &format!("{}\n", cut(&format!("    note: {}", note.text), LINE));
        }
        let follow: Vec<String> = cascade::under(newest, i.id).map(whom).collect();
        if !follow.is_empty() {
            let follow = format!("    with it, under {}: {}", i.id, follow.join(", "));
            text += &format!("{}\n", cut(&follow, LINE));
        }
    }
    match run.incidents_total() - newest.len() as u64 {
        0 => text,
        more => text + &format!("and {more} before these\n"),
    }
}

/// How roles are hosted and what is promised for it, where one is not the built-in one.
fn hosting(run: &Run<'_>, paint: Paint) -> String {
    match promises::is_built_in(&run.report.hosted) {
        true => String::new(),
        false => promises::whole(&run.report.hosted, &run.report.promises, paint),
    }
}

/// One line for every step. How training went is told in five columns more where a step says any of it and they fit
/// into the terminal's columns; none: it is no terminal.
pub fn steps(r: &v1::Report, columns: Option<usize>) -> Table {
    let is_told = |s: &v1::StepLine| {
        let means = [s.entropy, s.kl, s.clip_fraction, s.mean_length];
        means.iter().any(Option::is_some) || s.groups.is_some()
    };
    if r.step_lines.iter().any(is_told) {
        let wide = table_of(&r.step_lines, true);
        if columns.is_some_and(|columns| wide.width() <= columns) {
            return wide;
        }
    }
    table_of(&r.step_lines, false)
}

fn table_of(lines: &[v1::StepLine], with_health: bool) -> Table {
    let mut heads = vec![
        ">STEP",
        "AT",
        ">REWARD",
        ">LOSS",
        ">GRAD NORM",
        ">TOKENS",
        ">STALENESS",
    ];
    if with_health {
        heads.extend([">ENTROPY", ">KL", ">CLIPPED", ">FLAT", ">LENGTH"]);
    }
    heads.push(">TIME");
    let mut table = Table::new(&heads);
    for s in lines {
        let mut cells = vec![
            s.step.to_string(),
            time_of_day(s.at_ms),
            ratio(s.reward),
            format!("{:.4}", s.loss),
            format!("{:.3}", s.grad_norm),
            s.tokens.to_string(),
            s.staleness.to_string(),
        ];
        if with_health {
            cells.extend(health(s));
        }
        cells.push(millis(s.seconds * 1000.0));
        table.row(cells);
    }
    table
}

/// How a step's training went; `-`: nobody said it.
fn health(s: &v1::StepLine) -> [String; 5] {
    let told = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let figure = |value: Option<f64>| told(value.map(|v| format!("{v:.4}")));
    let flat = s.flat_groups.zip(s.groups);
    [
        figure(s.entropy),
        figure(s.kl),
        figure(s.clip_fraction),
        told(flat.map(|(flat, groups)| format!("{flat}/{groups}"))),
        told(s.mean_length.map(|v| format!("{v:.1}"))),
    ]
}
