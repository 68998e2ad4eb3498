//! What a trajectory is, and which step consumed it, in words.
use robust_proto::v1;
use robust_shared::core::SetbackKind;
use robust_shared::printable::one_line as printable;

/// A line for each thing that is known. `time` says when something was, of Unix ms.
pub fn text(w: &v1::Witness, time: &dyn Fn(u64) -> String) -> String {
    let mut text = format!("{:<12}{}\n", state(w), w.why);
    if let Some(step) = w.step {
        let (at, generation) = (time(w.committed_ms), w.generation);
        let record = w
            .record
            .map_or_else(String::new, |n| format!(", record {n}"));
        text += &format!(
            "record      of step {step}, committed at {at} by gang {generation}{record}\n"
        );
    }
    text += &match (w.attempt, w.attempts) {
        (Some(attempt), Some(of)) => format!("attempt     {attempt} of {of}{}\n", life(w)),
        (None, Some(of)) if w.agent.is_empty() => {
            format!("attempt     handed out {of} times{}\n", life(w))
        }
        (_, Some(of)) => format!(
            "attempt     {of}, by {} i{} since {}\n",
            w.agent,
            w.incarnation,
            time(w.since_ms)
        ),
        (_, None) if w.step.is_some() => {
            "attempt     not known: a former build did not count\n".to_owned()
        }
        (_, None) => String::new(),
    };
    if w.waits_until_ms > 0 {
        text += &format!(
            "waits       not handed out before {}\n",
            time(w.waits_until_ms)
        );
    }
    text += &setbacks(&w.setbacks, w.setbacks_left_out, time);
    if !w.kept {
        text += &match w.not_kept_since {
            Some(step) => format!("turns       no longer kept since step {step}\n"),
            None => "turns       no longer kept\n".to_owned(),
        };
    }
    for disagreement in &w.disagreements {
        text += &format!("disagrees   {}\n", printable(disagreement));
    }
    if w.proven {
        text += "proven      the step's record and its own record agree\n";
    }
    text
}

fn state(w: &v1::Witness) -> String {
    w.state.replace('_', " ")
}

fn life(w: &v1::Witness) -> String {
    match w.incarnation {
        0 => String::new(),
        n => format!(", brought to its end by i{n}"),
    }
}

/// One line each, below what they belong to.
fn setbacks(all: &[v1::Setback], left_out: u32, time: &dyn Fn(u64) -> String) -> String {
    let mut text = String::new();
    if left_out > 0 {
        text += &format!("            {left_out} setbacks before these\n");
    }
    for s in all {
        text += &format!("setback     {}\n", sentence(s, time));
    }
    text
}

/// What happened, when, to whom and why.
pub fn sentence(s: &v1::Setback, time: &dyn Fn(u64) -> String) -> String {
    let attempt = s
        .attempt
        .map_or_else(String::new, |n| format!("attempt {n}, "));
    let who = match s.agent.is_empty() {
        true => String::new(),
        false => format!(" ({} i{})", s.agent, s.incarnation),
    };
    let why = match s.why.is_empty() {
        true => String::new(),
        false => format!(": {}", printable(&s.why)),
    };
    let what = what(s);
    format!("{attempt}{}: {what}{who}{why}", time(s.at_ms))
}

fn what(s: &v1::Setback) -> String {
    let Some(kind) = s.kind() else {
        return printable(&s.kind);
    };
    match kind {
        SetbackKind::GivenBack => "given back, goes on from what is stored",
        SetbackKind::AgentGone => "its agent worker ended, goes on from what is stored",
        SetbackKind::NotBegun => "the command to begin it was lost",
        SetbackKind::JobOver => "the job ended",
        SetbackKind::Diverged => "generated again: could not be gone on with",
        SetbackKind::TooOld => "generated again: too old to train on",
        SetbackKind::TaskRestart => "generated again: everything was restarted",
        SetbackKind::SetAside => "set aside, trained on by no step",
    }
    .to_owned()
}
