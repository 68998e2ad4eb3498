//! What an engine counts, from its `/metrics`.

use crate::dialect::Kind;

/// Figures of an engine, summed over its ranks; none where the text does not have one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Gauges {
    /// Requests that generate.
    pub running: Option<u64>,
    /// Requests that wait.
    pub waiting: Option<u64>,
    /// Tokens generated since the engine's start.
    pub generated_tokens: Option<u64>,
    /// The fullest rank's share of key-value memory in use, from 0 to 1.
    pub kv_usage: Option<f64>,
}

impl Gauges {
    /// Reads Prometheus's text. A stopped engine goes on telling its last figures here: they say
    /// nothing of its health.
    pub fn read(kind: Kind, text: &str) -> Self {
        let [running, waiting, generated, usage] = match kind {
            Kind::Vllm => [
                "vllm:num_requests_running",
                "vllm:num_requests_waiting",
                "vllm:generation_tokens_total",
                "vllm:kv_cache_usage_perc",
            ],
            Kind::Sglang | Kind::Robust => [
                "sglang:num_running_reqs",
                "sglang:num_queue_reqs",
                "sglang:generation_tokens_total",
                "sglang:token_usage",
            ],
        };
        let sum = |name| samples(text, name).reduce(|a, b| a + b).map(|n| n as u64);
        Self {
            running: sum(running),
            waiting: sum(waiting),
            generated_tokens: sum(generated),
            kv_usage: samples(text, usage).reduce(f64::max),
        }
    }
}

/// The finite values of one metric, whatever their labels.
fn samples<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            // A label's text may have a brace in it, but no value has.
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest.strip_prefix([' ', '\t'])?,
        };
        let value: f64 = value.split_whitespace().next()?.parse().ok()?;
        value.is_finite().then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_summed_over_ranks_and_other_metrics_are_left_alone() {
        let text = "# HELP sglang:num_running_reqs The number of running requests.\n\
            # TYPE sglang:num_running_reqs gauge\n\
            sglang:num_running_reqs{dp_rank=\"0\",model=\"a}b\"} 3.0\n\
            sglang:num_running_reqs{dp_rank=\"1\"} 2.0\n\
            sglang:num_running_reqs_offline 7.0\n\
            sglang:generation_tokens_total 118.0\n\
            sglang:token_usage{dp_rank=\"0\"} 0.25\n\
            sglang:token_usage{dp_rank=\"1\"} 0.5\n";
        let gauges = Gauges::read(Kind::Sglang, text);
        assert_eq!(gauges.running, Some(5));
        assert_eq!(gauges.waiting, None);
        assert_eq!(gauges.generated_tokens, Some(118));
        assert_eq!(gauges.kv_usage, Some(0.5));
    }

    #[test]
    fn vllms_names_are_its_own_and_nonsense_is_no_figure() {
        let text = "vllm:num_requests_running{engine=\"0\"} NaN\n\
            vllm:num_requests_waiting{engine=\"0\"} 4.0 1700000000\n";
        let gauges = Gauges::read(Kind::Vllm, text);
        assert_eq!((gauges.running, gauges.waiting), (None, Some(4)));
    }
}
