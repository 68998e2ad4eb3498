//! The two forms of a scrape's text.
//!
//! The registry writes OpenMetrics, which Prometheus asks for. Others (curl, promtool, older
//! scrapers) get Prometheus' own older form, where a counter's family carries the `_total` itself.
use std::fmt::Write;

/// What a scraper is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Classic,
}

impl Form {
    /// What an `Accept` header asks for; the older form without one.
    pub fn asked(accept: &str) -> Self {
        let one = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let wanted = parts.next() == Some("application/openmetrics-text");
            wanted && !parts.any(|p| matches!(p, "q=0" | "q=0.0"))
        };
        match accept.split(',').map(str::trim).any(one) {
            true => Self::OpenMetrics,
            false => Self::Classic,
        }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The text in this form, from OpenMetrics.
    pub fn write(self, open: String) -> String {
        match self {
            Self::OpenMetrics => open,
            Self::Classic => classic(&open),
        }
    }
}

fn classic(open: &str) -> String {
    let counters: Vec<&str> = open
        .lines()
        .filter_map(|l| l.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(open.len());
    for line in open.lines() {
        let described = ["# HELP ", "# TYPE "]
            .into_iter()
            .find_map(|word| Some((word, line.strip_prefix(word)?.split_once(' ')?)));
        // Writing to a string does not fail.
        let _ = match described {
            Some((word, (name, rest))) if counters.contains(&name) => {
                writeln!(out, "{word}{name}_total {rest}")
            }
            None if line.starts_with("# EOF") || line.starts_with("# UNIT ") => Ok(()),
            _ => writeln!(out, "{line}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_asks_for_openmetrics_gets_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Form::asked(prometheus), Form::OpenMetrics);
        for other in ["", "*/*", "text/plain", "application/openmetrics-text;q=0"] {
            assert_eq!(Form::asked(other), Form::Classic, "{other}");
        }
    }

    #[test]
    fn a_counter_carries_its_total_in_the_older_form() {
        let open = "# HELP a_b A b.\n# TYPE a_b counter\na_b_total{x=\"# EOF\"} 1\n\
                    # HELP a_b_size Size.\n# TYPE a_b_size gauge\n# UNIT a_b_size x\na_b_size 2\n# EOF\n";
        let wanted = "# HELP a_b_total A b.\n# TYPE a_b_total counter\na_b_total{x=\"# EOF\"} 1\n\
                      # HELP a_b_size Size.\n# TYPE a_b_size gauge\na_b_size 2\n";
        assert_eq!(Form::Classic.write(open.to_owned()), wanted);
        assert_eq!(Form::OpenMetrics.write(open.to_owned()), open);
    }
}
