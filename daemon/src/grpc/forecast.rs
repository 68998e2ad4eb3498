//! What it would bring to ask for something: a copy of the controller is asked for it and run ahead, beside the driver.
use super::control::ControlService;
use super::inject;
use super::words::{ending, role, target};
use crate::driver::OperatorEvent;
use robust_ahead::forecast::{self, Act, Forecast, Measured};
use robust_proto::v1::{self, forecast_act::Act as Asked};
use robust_shared::core::Request as CoreRequest;
use robust_shared::ids::InstanceId;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tonic::Status;

/// Whoever asks waits no longer: a forecast is worth little when it comes late.
const WITHIN: Duration = Duration::from_secs(8);
/// So many wishes are run ahead together.
const MOST_ACTS: usize = 256;
/// One is run ahead at a time: it takes a core for as long as its bound of inputs lets it.
static ONE: Semaphore = Semaphore::const_new(1);

fn wrong(what: &str) -> Status {
    Status::invalid_argument(what)
}

fn act(request: v1::ForecastRequest) -> Result<Act, Status> {
    let v1::ForecastRequest { acts, leaves } = request;
    match (acts.len(), leaves.is_empty()) {
        (0, true) => Err(wrong(
            "nothing is asked for; name an act, or a node that leaves",
        )),
        (0, false) => Ok(Act::Leave(leaves)),
        (_, false) => Err(wrong("a node that leaves is looked at alone")),
        (n, true) if n > MOST_ACTS => Err(wrong("these are too many acts to look at together")),
        (_, true) => {
            let wishes = acts.into_iter().map(wish).collect::<Result<Vec<_>, _>>();
            wishes.map(Act::Ask)
        }
    }
}

/// What is asked of the controller.
fn wish(act: v1::ForecastAct) -> Result<CoreRequest, Status> {
    let Some(asked) = act.act else {
        return Err(wrong("this build does not know what is asked for"));
    };
    Ok(match asked {
        Asked::Inject(request) => inject::wish(&request)?,
        Asked::Restart(request) => CoreRequest::Restart {
            target: target(&request)?,
        },
        Asked::Scale(request) => CoreRequest::Scale {
            role: role(&request.role)?,
            count: request.count,
            revision: 0,
        },
        Asked::Cordon(v1::CordonRequest { node, out }) => match out {
            true => CoreRequest::Cordon { node },
            false => CoreRequest::Uncordon { node },
        },
        Asked::Quarantine(request) => CoreRequest::Quarantine {
            role: role(&request.role)?,
            index: request.index,
        },
        Asked::Readmit(request) => CoreRequest::Readmit {
            role: role(&request.role)?,
            index: request.index,
        },
        Asked::Pause(_) => CoreRequest::Pause,
        Asked::Resume(_) => CoreRequest::Resume,
        Asked::RestoreSlot(v1::RestoreSlotRequest { node, pool, index }) => {
            CoreRequest::RestoreSlot { node, pool, index }
        }
    })
}

fn reply(forecast: &Forecast) -> v1::ForecastReply {
    let ms = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e3);
    let names =
        |ids: &[InstanceId]| -> Vec<String> { ids.iter().map(ToString::to_string).collect() };
    let said = |why: &Option<String>| why.clone().unwrap_or_default();
    let assumed = forecast.assumed.iter();
    let assumed = assumed.map(|(figure, takes)| format!("{figure}: {} s", takes.as_secs_f64()));
    v1::ForecastReply {
        lines: forecast.lines(),
        refused: said(&forecast.refused),
        unknown: said(&forecast.unknown),
        plan: forecast.plan.clone(),
        restarts: names(&forecast.restarts),
        waiting: names(&forecast.waiting),
        detect_ms: ms(forecast.detect),
        restart_ms: ms(forecast.restart),
        reconnect_ms: ms(forecast.reconnect),
        whole_ms: ms(forecast.whole),
        stall_ms: ms(forecast.stall),
        steps_again: forecast.steps_again,
        moved: forecast.moved,
        again: forecast.again,
        thrown_away: forecast.thrown_away,
        set_aside: forecast.set_aside,
        ettr_lost: forecast.ettr_lost,
        ends: said(&forecast.ends),
        assumed: assumed.collect(),
    }
}

impl ControlService {
    pub(super) async fn on_forecast(
        &self,
        request: v1::ForecastRequest,
    ) -> Result<v1::ForecastReply, Status> {
        let ahead = self.run_ahead(act(request)?);
        let late = |_| {
            let seconds = WITHIN.as_secs();
            Status::deadline_exceeded(format!("there is no forecast within {seconds} s"))
        };
        tokio::time::timeout(WITHIN, ahead).await.map_err(late)?
    }

    async fn run_ahead(&self, act: Act) -> Result<v1::ForecastReply, Status> {
        let turn = ONE.acquire().await.map_err(|_| ending())?;
        let (answer, answered) = oneshot::channel();
        self.tell(OperatorEvent::Copy { answer })?;
        let none =
            |_| Status::failed_precondition("nothing of the job runs here, so nothing lies ahead");
        let copy = answered.await.map_err(none)?;
        let running = tokio::task::spawn_blocking(move || {
            let (core, now) = *copy;
            let forecast = forecast::of(&core, &act, &Measured::of(&core), now);
            drop(turn);
            forecast
        });
        let forecast = running.await.map_err(|e| Status::internal(e.to_string()))?;
        Ok(reply(&forecast))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::core::RestartTarget;
    use robust_shared::fault::Fault;
    use robust_shared::ids::Role;

    fn asked(acts: impl IntoIterator<Item = Asked>) -> v1::ForecastRequest {
        let act = |act| v1::ForecastAct { act: Some(act) };
        v1::ForecastRequest {
            acts: acts.into_iter().map(act).collect(),
            leaves: String::new(),
        }
    }

    #[test]
    fn verbs_become_what_is_asked_of_the_controller() {
        let node = "node-b".to_owned();
        let request = asked([
            Asked::Inject(v1::InjectRequest {
                fault: "kill".to_owned(),
                role: "rollout".to_owned(),
                index: Some(1),
                ..Default::default()
            }),
            Asked::Cordon(v1::CordonRequest {
                node: node.clone(),
                out: true,
            }),
            Asked::Restart(v1::RestartRequest {
                role: "trainer".to_owned(),
                index: None,
            }),
        ]);
        let wishes = vec![
            CoreRequest::Inject {
                fault: Fault::Kill,
                role: Role::Rollout,
                index: Some(1),
                incarnation: None,
                at: None,
            },
            CoreRequest::Cordon { node },
            CoreRequest::Restart {
                target: RestartTarget::Role(Role::Trainer),
            },
        ];
        assert_eq!(act(request).unwrap(), Act::Ask(wishes));
    }

    #[test]
    fn nothing_too_much_and_both_at_once_are_refused() {
        let nothing = v1::ForecastRequest::default();
        let pause = || Asked::Pause(v1::PauseRequest {});
        let many = asked(std::iter::repeat_with(pause).take(MOST_ACTS + 1));
        let both = v1::ForecastRequest {
            leaves: "node-b".to_owned(),
            ..asked([pause()])
        };
        let unknown = v1::ForecastRequest {
            acts: vec![v1::ForecastAct::default()],
            ..Default::default()
        };
        for request in [nothing, many, both, unknown] {
            assert_eq!(
                act(request).unwrap_err().code(),
                tonic::Code::InvalidArgument
            );
        }
    }

    #[test]
    fn a_refusal_is_told_with_its_line() {
        let forecast = Forecast {
            refused: Some("the job is paused".to_owned()),
            ..Forecast::default()
        };
        let reply = reply(&forecast);
        assert_eq!(reply.refused, "the job is paused");
        assert_eq!(reply.lines, ["it would be refused: the job is paused"]);
    }
}
