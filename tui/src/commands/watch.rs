//! `robustctl watch`: one line a step, across restarts of the daemon.
use crate::cli::WatchArgs;
use crate::ending::{is_over, job_result};
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use crate::format::{millis, of_total, ratio, time_of_day};
use crate::output::{self, put, put_json};
use robust_proto::v1;
use robust_shared::wire::InstanceState;
use std::time::{Duration, Instant};

/// How long a daemon that was reached once may stay away before `watch` and `events` give up.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two attempts to reach a lost daemon.
pub const RETRY_EVERY: Duration = Duration::from_millis(300);

/// Follows the job until it is over; fails when it failed.
pub async fn run(endpoint: &Endpoint, args: &WatchArgs, json: bool) -> Result<(), CliError> {
    let interval_ms = (args.interval * 1000.0) as u32;
    let mut lines = Lines::default();
    let show = |status: &mut v1::Status| match (json, lines.next(status)) {
        (true, _) => put_json(status),
        (false, Some(line)) => put(&line),
        (false, None) => Ok(()),
    };
    until_over(endpoint, interval_ms, json, show).await
}

/// Shows status after status until the job is over, across restarts of the daemon; fails when the job
/// failed.
pub async fn until_over(
    endpoint: &Endpoint,
    interval_ms: u32,
    json: bool,
    mut show: impl FnMut(&mut v1::Status) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut client = endpoint.reach().await?;
    loop {
        match over_connection(endpoint, &mut client, interval_ms, &mut show).await {
            Err(e) if e.is_lost() => client = reconnect(endpoint, json).await?,
            ended => return ended,
        }
    }
}

/// The same, as long as one connection holds.
async fn over_connection(
    endpoint: &Endpoint,
    client: &mut Client,
    interval_ms: u32,
    show: &mut impl FnMut(&mut v1::Status) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let asked = client.watch(v1::WatchRequest { interval_ms });
    let mut statuses = endpoint.ask(asked).await?;
    loop {
        let mut status = endpoint.follow(&mut statuses).await?;
        show(&mut status)?;
        if is_over(&status.state) {
            return job_result(&status.state, &status.reason);
        }
    }
}

/// Waits for a lost daemon, saying so on stderr; gives up after [`PATIENCE`].
pub async fn reconnect(endpoint: &Endpoint, json: bool) -> Result<Client, CliError> {
    let lost = Instant::now();
    let patience = PATIENCE.as_secs();
    output::note(&format!("daemon lost, retrying for {patience} s"), json);
    loop {
        // Also before the first attempt: one that can be reached and breaks off what is followed is
        // not asked without a pause.
        tokio::time::sleep(RETRY_EVERY).await;
        match endpoint.reach().await {
            Ok(client) => {
                let away = lost.elapsed().as_secs_f64();
                output::note(&format!("daemon back after {away:.1} s"), json);
                return Ok(client);
            }
            Err(e) if e.is_lost() && lost.elapsed() < PATIENCE => {}
            Err(e) => return Err(e),
        }
    }
}

/// Decides which statuses are worth a line.
#[derive(Default)]
struct Lines {
    last: Option<(u64, String, usize, String)>,
}

impl Lines {
    /// A line when the step, the state, its reason or the number of incidents changed.
    fn next(&mut self, s: &v1::Status) -> Option<String> {
        let key = (s.step, s.state.clone(), s.incidents.len(), s.reason.clone());
        if self.last.as_ref() == Some(&key) {
            return None;
        }
        self.last = Some(key);
        let down: Vec<String> = s
            .roles
            .iter()
            .filter(|r| {
                !matches!(
                    r.state(),
                    Some(InstanceState::Running | InstanceState::Done)
                )
            })
            .map(|r| format!("{}-{} {}", r.role, r.index, r.state))
            .collect();
        let down = if down.is_empty() {
            String::new()
        } else {
            format!("  [{}]", down.join(", "))
        };
        let reason = if s.reason.is_empty() {
            String::new()
        } else {
            format!("  ({})", s.reason)
        };
        Some(format!(
            "{}  step {:>4}{}  {:<10}  reward {:>6}  version {:>4}  ettr {}  {:>7}/step\
             {down}{reason}\n",
            time_of_day(s.now_ms),
            s.step,
            of_total(s.steps_total),
            s.state,
            ratio(s.reward),
            s.weight_version,
            ratio(s.ettr_sliding),
            millis(s.step_seconds * 1000.0),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_says_nothing_new_prints_nothing() {
        let mut lines = Lines::default();
        let mut status = v1::Status {
            step: 3,
            state: "running".into(),
            ..Default::default()
        };
        assert!(lines.next(&status).is_some());
        status.now_ms += 500;
        assert_eq!(lines.next(&status), None);
        (status.step, status.steps_total) = (4, 9);
        assert!(
            lines
                .next(&status)
                .is_some_and(|l| l.contains("step    4/9"))
        );
    }
}
