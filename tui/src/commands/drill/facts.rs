//! What a run left, asked of its daemon, as expectations see it.
use super::follow::{Followed, lost};
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;
use robust_shared::drill::{End, Facts, Recovery};
use robust_shared::wire::JobState;
use std::time::Duration;
use tokio_stream::StreamExt as _;

/// What there was before the drill; nothing for a job of its own.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// The first event that is the drill's.
    pub event: u64,
    /// The last incident that is not.
    pub incident: u64,
    /// Trajectories thrown away.
    pub discarded: u64,
}

impl Before {
    /// What there is now.
    pub async fn now(
        endpoint: &Endpoint,
        client: &mut Client,
        status: &v1::Status,
    ) -> Result<Self, CliError> {
        let events = events(endpoint, client, 0).await?;
        Ok(Self {
            event: events.last().map_or(0, |e| e.seq + 1),
            incident: status.incidents.last().map_or(0, |i| i.id),
            discarded: status.trajectories_discarded,
        })
    }
}

/// Asks for it all; the store is read through only when somebody wants to know.
pub async fn gather(
    endpoint: &Endpoint,
    followed: &mut Followed,
    report: &v1::Report,
    before: &Before,
    check_store: bool,
) -> Result<Facts, CliError> {
    let (status, client) = (&followed.status, &mut followed.client);
    let mut missing = missing(status, report, before);
    if check_store {
        missing.extend(store_problems(endpoint, client).await?);
    }
    let events = events(endpoint, client, before.event).await?;
    Ok(Facts {
        struck: followed.struck_at.is_some(),
        incidents: incidents(report, before).map(recovery).collect(),
        events: events.into_iter().map(|e| (e.kind, e.text)).collect(),
        ettr: report.ettr,
        goodput: report.goodput,
        end: end(status),
        steps_after: status.step.saturating_sub(followed.struck_at.unwrap_or(0)),
        lost: missing,
    })
}

/// The incidents of the drill.
pub fn incidents<'a>(
    report: &'a v1::Report,
    before: &'a Before,
) -> impl Iterator<Item = &'a v1::Incident> {
    report.incidents.iter().filter(|i| i.id > before.incident)
}

fn end(status: &v1::Status) -> End {
    match status.state() {
        Some(JobState::Completed) => End::Completed,
        Some(state @ (JobState::Failed | JobState::Stopped)) => {
            End::Failed(format!("the job {state}: {}", status.reason))
        }
        _ => End::GoesOn,
    }
}

/// An incident as expectations see it.
pub fn recovery(incident: &v1::Incident) -> Recovery {
    let time = |ms: f64| Duration::from_secs_f64(ms.max(0.0) / 1000.0);
    Recovery {
        rule: incident.rule.clone(),
        plan: incident.plan.clone(),
        detect: time(incident.detect_ms),
        total: time(incident.total_ms),
        recovered: incident.outcome() == Some(IncidentOutcome::Recovered),
    }
}

/// What can be seen without the store.
fn missing(status: &v1::Status, report: &v1::Report, before: &Before) -> Vec<String> {
    let mut missing = Vec::new();
    let steps = report.step_lines.iter().map(|l| l.step);
    for (expected, step) in (1..).zip(steps) {
        if step != expected {
            missing.push(format!("step {step} follows step {}", expected - 1));
            break;
        }
    }
    let thrown =
        status.trajectories_discarded - before.discarded.min(status.trajectories_discarded);
    if thrown > 0 {
        missing.push(format!("{thrown} trajectories were thrown away"));
    }
    missing
}

async fn events(
    endpoint: &Endpoint,
    client: &mut Client,
    since_seq: u64,
) -> Result<Vec<v1::Event>, CliError> {
    let request = v1::EventsRequest {
        follow: false,
        since_seq,
    };
    let mut stream = endpoint.ask(client.events(request)).await?;
    let mut events = Vec::new();
    while let Some(event) = endpoint.next(&mut stream).await? {
        events.push(event);
    }
    Ok(events)
}

/// What the daemon finds wrong in the whole of its store.
pub async fn store_problems(
    endpoint: &Endpoint,
    client: &mut Client,
) -> Result<Vec<String>, CliError> {
    let asked = client.check_store(v1::CheckStoreRequest {});
    let mut words = endpoint.ask(asked).await?;
    // Between two words lies as much work as there is: whether it is there the connection finds out.
    while let Some(word) = words.next().await {
        let word = word.map_err(lost)?;
        if word.done {
            return Ok(word.problems);
        }
    }
    Err(CliError::Protocol(
        "the store's check ended without a result".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(steps: &[u64]) -> v1::Report {
        let line = |step: &u64| v1::StepLine {
            step: *step,
            ..Default::default()
        };
        v1::Report {
            step_lines: steps.iter().map(line).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn a_step_that_is_missing_or_there_twice_is_a_loss() {
        let missing =
            |steps: &[u64]| missing(&v1::Status::default(), &report(steps), &Before::default());
        assert_eq!(missing(&[1, 2, 3]), Vec::<String>::new());
        assert_eq!(missing(&[1, 3]), ["step 3 follows step 1"]);
        assert_eq!(missing(&[1, 1, 2]), ["step 1 follows step 1"]);
    }

    #[test]
    fn only_what_the_drill_threw_away_counts() {
        let status = v1::Status {
            trajectories_discarded: 5,
            ..Default::default()
        };
        let of = |discarded| {
            let before = Before {
                discarded,
                ..Before::default()
            };
            missing(&status, &report(&[]), &before)
        };
        assert_eq!(of(5), Vec::<String>::new());
        assert_eq!(of(3), ["2 trajectories were thrown away"]);
    }
}
