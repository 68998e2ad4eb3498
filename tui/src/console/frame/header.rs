//! The job's two lines and the banner below them.
use crate::console::flow::tokens_per_s;
use crate::console::state::{Link, Sight};
use crate::console::ui::look::Tone;
use crate::console::ui::{put, put_ends};
use crate::format::{bar, clock, count, millis, mode, moment, of_total, ratio, who};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;
use robust_shared::wire::{JobState, PauseState};

/// Older data than this is worth a warning.
const STALE_MS: u64 = 3_000;

/// The two lines.
pub fn draw(sight: &Sight, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    let look = sight.look;
    let name = sight.in_context(&look.fit(&s.job, 24));
    let mut job = vec![
        Span::styled(format!(" {name}"), look.strong()),
        Span::styled(
            format!("  {} {}", look.sign(&s.state), s.state),
            look.tone(look.tone_of(&s.state)),
        ),
        Span::raw(format!("  {}, policy {}", mode(s), s.policy)),
    ];
    let age = age(sight);
    let pace = Span::styled(format!("  {} tok/s", count(tokens_per_s(s))), look.faint());
    // The name of a context takes room, and how old all this is says more than the pace.
    let taken: usize = job.iter().chain([&pace]).map(Span::width).sum();
    if sight.context.is_none() || taken + 2 + age.width() <= usize::from(area.width) {
        job.push(pace);
    }
    put_ends(buf, area, 0, Line::from(job), age);
    let (flying, waiting) = (s.trajectories_in_flight, s.trajectories_finished);
    let work = format!("{flying} in flight, {waiting} waiting ");
    let work = Line::styled(work, look.faint());
    put_ends(buf, area, 1, progress(sight, s, area.width), work);
}

fn age(sight: &Sight) -> Line<'static> {
    let age = sight.data_age_ms();
    let style = if age > STALE_MS || sight.link != Link::Live {
        sight.look.tone(Tone::Bad)
    } else {
        sight.look.faint()
    };
    let seconds = |ms: u64| clock(ms as f64 / 1000.0);
    Line::from(vec![
        Span::raw(format!("up {}  ", seconds(sight.job.elapsed_ms()))),
        Span::styled(format!("data {} old ", seconds(age)), style),
    ])
}

fn progress(sight: &Sight, s: &v1::Status, width: u16) -> Line<'static> {
    let look = sight.look;
    let step = format!("{}{} ", s.step, of_total(s.steps_total));
    let mut spans = vec![Span::raw(" step "), Span::styled(step, look.strong())];
    let figures = figures(sight, s);
    // How far it is from an end that nobody knows cannot be drawn.
    if s.steps_total > 0 {
        let done = s.step as f64 / s.steps_total as f64;
        let percent = Span::raw(format!(" {:.0}%", done * 100.0));
        // The gauge gives way to figures, which are nothing when they are cut off.
        let others = spans.iter().chain(&figures).chain([&percent]);
        let taken: usize = others.map(Span::width).sum::<usize>() + 2;
        let left = usize::from(width).saturating_sub(taken);
        let cells = usize::from(width / 6).clamp(10, 40).min(left).max(4);
        spans.extend([
            Span::styled(look.glyph("▕", "["), look.faint()),
            Span::styled(bar(done, cells, look.ascii), look.accent()),
            Span::styled(look.glyph("▏", "]"), look.faint()),
            percent,
        ]);
    }
    spans.extend(figures);
    Line::from(spans)
}

/// What the last step says of the job.
fn figures(sight: &Sight, s: &v1::Status) -> Vec<Span<'static>> {
    let look = sight.look;
    let mut spans = vec![
        Span::raw("  version "),
        Span::styled(s.weight_version.to_string(), look.strong()),
        Span::raw("  reward "),
        Span::styled(ratio(s.reward), look.strong()),
    ];
    if s.step_seconds > 0.0 {
        let time = millis(s.step_seconds * 1000.0);
        spans.push(Span::raw(format!("  {time}/step")));
    }
    if let Some(eta) = sight.job.eta_s() {
        spans.push(Span::raw(format!("  ETA {}", clock(eta))));
    }
    spans
}

/// Whether a line is needed for something that must not be missed.
pub fn has_banner(sight: &Sight) -> bool {
    let says = |s: &v1::Status| {
        !(s.reason.is_empty() && s.alarms.is_empty() && s.armed.is_empty()) || s.pause.is_some()
    };
    let said = sight.job.status().is_some_and(says);
    matches!(sight.link, Link::Lost { .. }) || sight.job.is_over() || said || sight.advice.is_some()
}

/// Daemon lost, job over, an alarm, what an operator left behind, or what one could do.
pub fn draw_banner(sight: &Sight, s: &v1::Status, area: Rect, buf: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let look = sight.look;
    let (text, style) = match &sight.link {
        _ if sight.job.is_over() => (
            over(sight, s),
            match s.state() {
                Some(JobState::Failed) => look.alarm(),
                _ => look.strong().patch(look.selection()),
            },
        ),
        Link::Lost { since, reason } => {
            let away = clock(sight.now.saturating_sub(*since) as f64 / 1000.0);
            let dash = look.glyph("—", "-");
            let text = format!("daemon lost {away} ago, retrying {dash} {reason}");
            (text, look.alarm())
        }
        _ if !s.alarms.is_empty() => {
            let texts: Vec<&str> = s.alarms.iter().map(|a| &*a.text).collect();
            (texts.join("; "), look.alarm())
        }
        // What a starting job waits for, such as the warm-up of its model, is a reason too.
        _ => match (left_behind(sight, s), &sight.advice) {
            (left, Some(advice)) if left.is_empty() => {
                // A sign and the spaces around it stand before it.
                let room = usize::from(area.width).saturating_sub(3);
                (advice.line(room), look.accent())
            }
            (left, _) => (left, look.tone(Tone::Warn)),
        },
    };
    let warns = !s.alarms.is_empty() || !s.armed.is_empty();
    let sign = match &sight.link {
        Link::Lost { .. } if !sight.job.is_over() => look.sign("warn"),
        _ if !sight.job.is_over() && warns => look.sign("warn"),
        _ if !sight.job.is_over() && s.pause.is_some() => look.sign("paused"),
        _ if sight.advice.is_some() && s.reason.is_empty() => look.sign("advice"),
        _ => look.sign(&s.state),
    };
    buf.set_style(area, style);
    let text = look.fit(&format!(" {sign} {text}"), usize::from(area.width));
    put(buf, area, 0, Line::styled(text, style));
}

/// A pause, faults that wait for their moment, and the job's own words.
fn left_behind(sight: &Sight, s: &v1::Status) -> String {
    let mut texts = Vec::new();
    if let Some(pause) = &s.pause {
        let since = clock(s.now_ms.saturating_sub(pause.since_ms) as f64 / 1000.0);
        texts.push(match pause.state() {
            Some(PauseState::Paused) => format!("paused for {since}, P goes on"),
            _ => format!("pauses after step {}, P goes on", pause.after_step),
        });
    }
    for armed in &s.armed {
        let name = who(&armed.role, armed.index);
        let at = match armed.at.as_str() {
            "" => "told".to_owned(),
            _ => format!("waits for {}", moment(armed)),
        };
        texts.push(format!("armed: {} for {name}, {at}", armed.fault));
    }
    texts.extend((!s.reason.is_empty()).then(|| s.reason.clone()));
    texts.join(&format!(" {} ", sight.look.glyph("·", "|")))
}

fn over(sight: &Sight, s: &v1::Status) -> String {
    let recovered = s
        .incidents
        .iter()
        .filter(|i| i.outcome() == Some(IncidentOutcome::Recovered))
        .count();
    let ran = clock(sight.job.elapsed_ms() as f64 / 1000.0);
    let mut text = format!(
        "job {} after {ran}: {} steps, reward {}, ETTR {}, {recovered}/{} recovered",
        s.state,
        s.step,
        ratio(s.reward),
        ratio(s.ettr),
        s.incidents.len()
    );
    if !s.reason.is_empty() {
        text = format!(
            "job {} after {ran} at step {}: {}",
            s.state, s.step, s.reason
        );
    }
    text
}
