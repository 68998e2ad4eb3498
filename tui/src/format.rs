//! Numbers and times as people read them.
use chrono::{FixedOffset, Local, TimeZone as _};
use robust_proto::v1::{self, NodeStatus};
use robust_shared::ids::Role;
use robust_shared::printable::one_line;
use robust_shared::wire::Word as _;

/// What comes after the step: how many there are, where somebody knows.
pub fn of_total(total: u64) -> String {
    match total {
        0 => String::new(),
        total => format!("/{total}"),
    }
}

/// `12 ms`, `1.34 s`, `2m05s`; `-` for nothing measured.
pub fn millis(ms: f64) -> String {
    if !ms.is_finite() || ms <= 0.0 {
        return "-".to_owned();
    }
    if ms < 999.5 {
        return if ms < 1.0 {
            "<1 ms".to_owned()
        } else {
            format!("{ms:.0} ms")
        };
    }
    let s = ms / 1000.0;
    if s < 9.995 {
        format!("{s:.2} s")
    } else if s < 99.95 {
        format!("{s:.1} s")
    } else {
        clock(s)
    }
}

/// The same without the space, where room is short: `12ms`, `1.34s`.
pub fn millis_tight(ms: f64) -> String {
    millis(ms).replace(' ', "")
}

/// Seconds as `45s`, `3m20s`, `2h05m`.
pub fn clock(seconds: f64) -> String {
    let s = if seconds.is_finite() {
        seconds.max(0.0) as u64
    } else {
        0
    };
    match s {
        0..=59 => format!("{s}s"),
        60..=3599 => format!("{}m{:02}s", s / 60, s % 60),
        _ => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
    }
}

/// A node's faults and when the last one was: `2 (last 3m20s ago)`.
pub fn faults(n: &NodeStatus, now_ms: u64) -> String {
    match n.last_fault_ms {
        0 => "-".to_owned(),
        last => {
            let ago = clock(now_ms.saturating_sub(last) as f64 / 1000.0);
            format!("{} (last {ago} ago)", n.faults)
        }
    }
}

/// `512 B`, `4.0 MiB`.
pub fn bytes(n: u64) -> String {
    if n < 1024 {
        return format!("{n} B");
    }
    let (mut v, mut unit) = (n as f64 / 1024.0, "KiB");
    for next in ["MiB", "GiB", "TiB"] {
        if v < 1023.5 {
            break;
        }
        (v, unit) = (v / 1024.0, next);
    }
    if v < 9.95 {
        format!("{v:.1} {unit}")
    } else {
        format!("{v:.0} {unit}")
    }
}

/// `1.93 GB/s`: rates are decimal, as links are sold and other tools print them.
pub fn rate(bytes_per_s: f64) -> String {
    match bytes_per_s {
        r if !r.is_finite() || r <= 0.0 => "-".to_owned(),
        r if r < 999.5 => format!("{r:.0} B/s"),
        r if r < 999_500.0 => format!("{:.0} kB/s", r / 1e3),
        r if r < 999_500_000.0 => format!("{:.0} MB/s", r / 1e6),
        r => format!("{:.2} GB/s", r / 1e9),
    }
}

/// Counts in at most five characters: `987`, `12.3k`, `4.5M`.
pub fn count(n: f64) -> String {
    match n {
        n if !n.is_finite() => "-".to_owned(),
        n if n < 999.5 => format!("{n:.0}"),
        n if n < 99_950.0 => format!("{:.1}k", n / 1e3),
        n if n < 999_500.0 => format!("{:.0}k", n / 1e3),
        n => format!("{:.1}M", n / 1e6),
    }
}

/// Time of day with milliseconds, here.
pub fn time_of_day(unix_ms: u64) -> String {
    time_of_day_at(unix_ms, *Local::now().offset())
}

/// Date and time of day in seconds, here.
pub fn moment_of(unix_ms: u64) -> String {
    let ms = i64::try_from(unix_ms).ok();
    let at = ms.and_then(|ms| Local.timestamp_millis_opt(ms).single());
    at.map_or_else(|| "-".to_owned(), |t| t.format("%F %T").to_string())
}

/// Time of day with milliseconds, at an offset from UTC.
pub fn time_of_day_at(unix_ms: u64, zone: FixedOffset) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|ms| zone.timestamp_millis_opt(ms).single())
        .map_or_else(|| "-".to_owned(), |t| t.format("%H:%M:%S%.3f").to_string())
}

/// A ratio with three digits, as ETTR is quoted.
pub fn ratio(v: f64) -> String {
    if v.is_finite() {
        format!("{v:.3}")
    } else {
        "-".to_owned()
    }
}

/// What a process died of, how often in a row, and what it is known again by.
pub fn cause(cause: &v1::Cause) -> String {
    let v1::Cause {
        fingerprint,
        words,
        count,
    } = cause;
    match count {
        0 | 1 => format!("{words} ({fingerprint})"),
        _ => format!("{words}, {count} times in a row ({fingerprint})"),
    }
}

/// `role-index`.
pub fn who(role: &str, index: u32) -> String {
    if role.is_empty() {
        "-".to_owned()
    } else {
        format!("{role}-{index}")
    }
}

/// The moment that an armed fault waits for: `update`, `load_checkpoint of its next life`.
pub fn moment(armed: &robust_proto::v1::ArmedFault) -> String {
    match (armed.at.as_str(), armed.incarnation) {
        (at, 0) => format!("{at} of its next life"),
        (at, _) => at.to_owned(),
    }
}

/// A bar of `width` cells filled to `fraction`, in eighths of a cell where the terminal can.
pub fn bar(fraction: f64, width: usize, ascii: bool) -> String {
    let fraction = if fraction.is_finite() {
        fraction.clamp(0.0, 1.0)
    } else {
        0.0
    };
    if ascii {
        let full = (fraction * width as f64).round() as usize;
        return "#".repeat(full) + &".".repeat(width - full);
    }
    let eighths = (fraction * width as f64 * 8.0).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    let mut used = eighths / 8;
    if !eighths.is_multiple_of(8) {
        text.push(['▏', '▎', '▍', '▌', '▋', '▊', '▉'][eighths % 8 - 1]);
        used += 1;
    }
    text + &" ".repeat(width - used)
}

/// A text as one line of at most so many columns.
pub fn cut(text: &str, columns: usize) -> String {
    let clean = one_line(text);
    match clean.chars().count() > columns {
        true => clean.chars().take(columns - 2).collect::<String>() + "..",
        false => clean,
    }
}

/// Whether the locale says that the terminal understands UTF-8.
pub fn locale_is_utf8() -> bool {
    // The first that is set decides, as in setlocale(3).
    let value = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|v| !v.is_empty());
    value.is_some_and(|v| {
        let v = v.to_ascii_lowercase();
        v.contains("utf-8") || v.contains("utf8")
    })
}

/// The mode, and whose turn the trainer's slots are where it changes.
pub fn mode(s: &v1::Status) -> String {
    match s.context.as_str() {
        "" => s.mode.clone(),
        context => format!("{} ({context})", s.mode),
    }
}

/// Whether a role of this name generates: it serves weights and takes requests.
pub fn is_engine(role: &str) -> bool {
    Role::known(role).is_some_and(Role::is_engine)
}

/// Whether the role of this name is a rank of the trainer.
pub fn is_trainer(role: &str) -> bool {
    Role::known(role) == Some(Role::Trainer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_says_how_often_it_was_met_once_that_is_more_than_once() {
        let shown = [1, 3].map(|count| {
            cause(&v1::Cause {
                fingerprint: "91b2a947f85fabd6".to_owned(),
                words: "exit code 1: KeyError: 'prompt'".to_owned(),
                count,
            })
        });
        assert_eq!(
            shown,
            [
                "exit code 1: KeyError: 'prompt' (91b2a947f85fabd6)",
                "exit code 1: KeyError: 'prompt', 3 times in a row (91b2a947f85fabd6)"
            ]
        );
    }

    #[test]
    fn durations_read_naturally_at_every_size() {
        let shown = [
            0.0,
            0.4,
            12.0,
            999.6,
            1340.0,
            15_260.0,
            125_000.0,
            7_500_000.0,
        ]
        .map(millis);
        let expected = [
            "-", "<1 ms", "12 ms", "1.00 s", "1.34 s", "15.3 s", "2m05s", "2h05m",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn bytes_and_counts_keep_few_digits() {
        assert_eq!(
            [0, 1023, 1024, 4 << 20, 3 << 30].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "4.0 MiB", "3.0 GiB"]
        );
        assert_eq!(
            [0.0, 999.0, 12_340.0, 250_000.0, 4.5e6].map(count),
            ["0", "999", "12.3k", "250k", "4.5M"]
        );
    }

    #[test]
    fn a_bar_is_always_as_wide_as_asked() {
        for ascii in [true, false] {
            for i in 0..=100 {
                let text = bar(f64::from(i) / 100.0, 13, ascii);
                assert_eq!(text.chars().count(), 13, "{i}: {text:?}");
            }
        }
        assert_eq!(bar(f64::NAN, 3, true), "...");
    }
}
