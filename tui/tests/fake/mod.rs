//! A Control server in the test's own process: answers what the test put into it.
pub mod server;

use robust_proto::endpoint::{FOLLOWER, LEADER_AT};
use robust_proto::v1;
use robust_proto::v1::control_server::Control;
use robust_shared::core::UNDER_WAY;
pub use server::Server;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

/// What the server answers.
#[derive(Default)]
pub struct Book {
    pub status: v1::Status,
    pub events: Vec<v1::Event>,
    pub report: v1::Report,
    /// Its parts.
    pub history: Vec<v1::History>,
    pub rules: v1::Rules,
    /// Answer to injections; none: refused with [`REFUSAL`].
    pub inject: Option<v1::InjectReply>,
    pub injected: Vec<v1::InjectRequest>,
    pub stopped: bool,
    /// What the job was asked for: `pause`, `resume`, `restart rollout-1`.
    pub asked: Vec<String>,
    /// So many restarts are refused because another one is under way.
    pub busy: u32,
    /// Cordons are refused.
    pub no_cordons: bool,
    /// Phases that ended, and present ones last.
    pub phases: Vec<v1::PhaseSpan>,
    /// What each place wrote.
    pub logs: BTreeMap<String, String>,
    /// What is found of instances, and what they answer.
    pub inside: Vec<v1::InspectPart>,
    pub trajectories: Vec<v1::Trajectory>,
    /// Parts of what entered a step; none: the step is not committed.
    pub steps: Vec<v1::StepAccount>,
    /// Answer to what would be asked; none: it is of a build that tells nothing ahead.
    pub forecast: Option<v1::ForecastReply>,
    /// Where the leader is that this controller follows, which is empty where nobody knows; none: it leads.
    pub follows: Option<String>,
    /// Events and trajectories come, but their end does not.
    pub never_ends: bool,
}

pub const REFUSAL: &str = "there is no trainer 7; the job has 2 (0 to 1)";

/// A job in the middle, without its roles.
pub fn running() -> v1::Status {
    v1::Status {
        job: "arith".into(),
        mode: "async".into(),
        policy: "role".into(),
        state: "running".into(),
        step: 12,
        steps_total: 40,
        started_ms: 1_000,
        now_ms: 66_000,
        ..Default::default()
    }
}

#[derive(Clone)]
pub struct Fake(pub Arc<Mutex<Book>>);

impl Fake {
    fn leads(&self) -> Result<(), Status> {
        let Some(at) = self.0.lock().unwrap().follows.clone() else {
            return Ok(());
        };
        let mut status = Status::unavailable("b is a controller that follows a");
        let metadata = status.metadata_mut();
        metadata.insert(FOLLOWER, "yes".parse().unwrap());
        if !at.is_empty() {
            metadata.insert(LEADER_AT, at.parse().unwrap());
        }
        Err(status)
    }
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Control for Fake {
    type WatchStream = Streamed<v1::Status>;
    type PhasesStream = Streamed<v1::PhasesPart>;
    type AuditStream = Streamed<v1::AuditEntry>;
    type EventsStream = Streamed<v1::Event>;
    type TrajectoriesStream = Streamed<v1::Trajectory>;
    type GetStepStream = Streamed<v1::StepAccount>;
    type CheckStoreStream = Streamed<v1::StoreCheck>;
    type LogsStream = Streamed<v1::LogPart>;
    type InspectStream = Streamed<v1::InspectPart>;
    type GetHistoryStream = Streamed<v1::History>;

    async fn get_status(
        &self,
        _: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        self.leads()?;
        Ok(Response::new(self.0.lock().unwrap().status.clone()))
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let book = self.0.clone();
        let every = Duration::from_millis(request.into_inner().interval_ms.into());
        let ticks = tokio_stream::wrappers::IntervalStream::new(tokio::time::interval(every));
        let statuses = ticks.map(move |_| Ok(book.lock().unwrap().status.clone()));
        Ok(Response::new(Box::pin(statuses)))
    }

    async fn phases(
        &self,
        request: Request<v1::PhasesRequest>,
    ) -> Result<Response<Self::PhasesStream>, Status> {
        let v1::PhasesRequest {
            follow,
            role,
            index,
            ..
        } = request.into_inner();
        let mut spans = self.0.lock().unwrap().phases.clone();
        spans.retain(|s| {
            (role.is_empty() || role == s.role) && index.is_none_or(|index| index == s.index)
        });
        let parts = tokio_stream::iter([Ok(v1::PhasesPart { spans })]);
        Ok(Response::new(if follow {
            Box::pin(parts.chain(tokio_stream::pending()))
        } else {
            Box::pin(parts)
        }))
    }

    async fn events(
        &self,
        request: Request<v1::EventsRequest>,
    ) -> Result<Response<Self::EventsStream>, Status> {
        let v1::EventsRequest { follow, since_seq } = request.into_inner();
        let (stored, never_ends) = {
            let book = self.0.lock().unwrap();
            (book.events.clone(), book.never_ends)
        };
        let stored = stored
            .into_iter()
            .filter(move |e| e.seq >= since_seq)
            .map(Ok);
        let stored = tokio_stream::iter(stored);
        Ok(Response::new(if follow || never_ends {
            Box::pin(stored.chain(tokio_stream::pending()))
        } else {
            Box::pin(stored)
        }))
    }

    async fn trajectories(
        &self,
        _: Request<v1::TrajectoriesRequest>,
    ) -> Result<Response<Self::TrajectoriesStream>, Status> {
        let book = self.0.lock().unwrap();
        let stored = tokio_stream::iter(book.trajectories.clone().into_iter().map(Ok));
        Ok(Response::new(match book.never_ends {
            true => Box::pin(stored.chain(tokio_stream::pending())),
            false => Box::pin(stored),
        }))
    }

    async fn get_step(
        &self,
        _: Request<v1::GetStepRequest>,
    ) -> Result<Response<Self::GetStepStream>, Status> {
        let parts = self.0.lock().unwrap().steps.clone();
        if parts.is_empty() {
            return Err(Status::not_found(
                "step 7 is not committed, nor is any other",
            ));
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(
            parts.into_iter().map(Ok),
        ))))
    }

    async fn get_steps(
        &self,
        request: Request<v1::GetStepsRequest>,
    ) -> Result<Response<v1::GetStepsReply>, Status> {
        let after = request.into_inner().after.unwrap_or(0);
        let lines = self.0.lock().unwrap().report.step_lines.clone();
        let lines = lines.into_iter().filter(|line| line.step > after);
        let lines = lines.collect();
        Ok(Response::new(v1::GetStepsReply { lines }))
    }

    async fn check_store(
        &self,
        _: Request<v1::CheckStoreRequest>,
    ) -> Result<Response<Self::CheckStoreStream>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn inject(
        &self,
        request: Request<v1::InjectRequest>,
    ) -> Result<Response<v1::InjectReply>, Status> {
        let mut book = self.0.lock().unwrap();
        book.injected.push(request.into_inner());
        let refused = || Status::failed_precondition(REFUSAL);
        book.inject.clone().map(Response::new).ok_or_else(refused)
    }

    async fn disarm(
        &self,
        request: Request<v1::DisarmRequest>,
    ) -> Result<Response<v1::DisarmReply>, Status> {
        let id = request.into_inner().id;
        let armed = &mut self.0.lock().unwrap().status.armed;
        let meant = |a: &mut v1::ArmedFault| id.is_none_or(|id| id == a.id);
        let disarmed = armed.extract_if(.., meant).collect();
        Ok(Response::new(v1::DisarmReply { disarmed }))
    }

    async fn audit(
        &self,
        _: Request<v1::AuditRequest>,
    ) -> Result<Response<Self::AuditStream>, Status> {
        let entry = |id: u64, result: &str, reason: &str| v1::AuditEntry {
            id,
            at_ms: 1_700_000_000_000 + id,
            who: "uid 0 (root), pid 7".to_owned(),
            what: "inject".to_owned(),
            on: "{\"fault\":\"kill\"}".to_owned(),
            result: result.to_owned(),
            reason: reason.to_owned(),
            took_ms: 3,
        };
        let lines = [
            entry(1, "asked", ""),
            entry(1, "refused", "it is protected"),
            entry(2, "asked", ""),
        ];
        Ok(Response::new(Box::pin(tokio_stream::iter(lines.map(Ok)))))
    }

    async fn note(
        &self,
        request: Request<v1::NoteRequest>,
    ) -> Result<Response<v1::NoteReply>, Status> {
        let v1::NoteRequest { incident, text } = request.into_inner();
        let note = v1::IncidentNote {
            at_ms: 1_700_000_000_000,
            who: "uid 7 (ann), pid 9".to_owned(),
            text,
        };
        let incidents = &mut self.0.lock().unwrap().status.incidents;
        let Some(found) = incidents.iter_mut().find(|i| i.id == incident) else {
            return Err(Status::not_found(format!(
                "there is no incident {incident}"
            )));
        };
        found.notes.push(note.clone());
        Ok(Response::new(v1::NoteReply {
            note: Some(note),
            count: u32::try_from(found.notes.len()).unwrap(),
        }))
    }

    async fn forecast(
        &self,
        request: Request<v1::ForecastRequest>,
    ) -> Result<Response<v1::ForecastReply>, Status> {
        let mut book = self.0.lock().unwrap();
        let Some(forecast) = book.forecast.clone() else {
            return Err(Status::unimplemented("no such method"));
        };
        let acts = request.into_inner().acts;
        book.asked.push(format!("forecast {:?}", acts[0].act));
        Ok(Response::new(forecast))
    }

    async fn quarantine(
        &self,
        request: Request<v1::QuarantineRequest>,
    ) -> Result<Response<v1::QuarantineReply>, Status> {
        quarantined(request.into_inner(), true)
    }

    async fn readmit(
        &self,
        request: Request<v1::QuarantineRequest>,
    ) -> Result<Response<v1::QuarantineReply>, Status> {
        quarantined(request.into_inner(), false)
    }

    async fn scale(
        &self,
        request: Request<v1::ScaleRequest>,
    ) -> Result<Response<v1::ChangeReply>, Status> {
        let v1::ScaleRequest { role, count } = request.into_inner();
        if count == 0 {
            return Err(Status::failed_precondition("rollout cannot be 0"));
        }
        Ok(Response::new(v1::ChangeReply {
            role,
            when: "now".to_owned(),
            from: 3,
            to: count,
            revision: 0,
        }))
    }

    async fn update(
        &self,
        request: Request<v1::UpdateRequest>,
    ) -> Result<Response<v1::ChangeReply>, Status> {
        Ok(Response::new(v1::ChangeReply {
            role: request.into_inner().role,
            when: "when step 4 is committed".to_owned(),
            revision: 2,
            ..Default::default()
        }))
    }

    async fn cordon(
        &self,
        request: Request<v1::CordonRequest>,
    ) -> Result<Response<v1::CordonReply>, Status> {
        let v1::CordonRequest { node, out } = request.into_inner();
        if self.0.lock().unwrap().no_cordons {
            return Err(Status::failed_precondition("the job is stopping"));
        }
        Ok(Response::new(v1::CordonReply { node, out }))
    }

    async fn create_join_token(
        &self,
        request: Request<v1::CreateJoinTokenRequest>,
    ) -> Result<Response<v1::CreateJoinTokenReply>, Status> {
        let v1::CreateJoinTokenRequest { node, ttl_s } = request.into_inner();
        let mut book = self.0.lock().unwrap();
        book.asked.push(format!("token for `{node}`, {ttl_s} s"));
        Ok(Response::new(v1::CreateJoinTokenReply {
            id: "5f3c0001".to_owned(),
            token: "ab".repeat(32),
            expires_ms: 1_700_000_000_000,
        }))
    }

    async fn revoke_join(
        &self,
        request: Request<v1::RevokeJoinRequest>,
    ) -> Result<Response<v1::RevokeJoinReply>, Status> {
        let mut book = self.0.lock().unwrap();
        book.asked.push(format!("{:?}", request.into_inner().what));
        Ok(Response::new(v1::RevokeJoinReply {}))
    }

    async fn list_joins(
        &self,
        _: Request<v1::ListJoinsRequest>,
    ) -> Result<Response<v1::ListJoinsReply>, Status> {
        Ok(Response::new(v1::ListJoinsReply {
            tokens: vec![v1::JoinToken {
                id: "5f3c0001".to_owned(),
                node: "b".to_owned(),
                expires_ms: 1_700_000_000_000,
                used_by: String::new(),
            }],
            nodes: vec![v1::EnrolledNode {
                name: "c".to_owned(),
                since_ms: 1_700_000_000_000,
                fingerprint: "0123456789abcdef".repeat(4),
                joined: true,
                until_ms: 1_702_592_000_000,
            }],
            revoked: vec!["operator.alice.4000000000".to_owned()],
        }))
    }

    async fn rotate_authority(
        &self,
        request: Request<v1::RotateAuthorityRequest>,
    ) -> Result<Response<v1::AuthorityReply>, Status> {
        let v1::RotateAuthorityRequest { now } = request.into_inner();
        let mut book = self.0.lock().unwrap();
        book.asked.push(format!("rotate the authority, now {now}"));
        let waits = |kind: &str, name: &str, incarnation, here| v1::Certified {
            kind: kind.to_owned(),
            name: name.to_owned(),
            incarnation,
            authority: "aaaaaaaaaaaaaaaa".to_owned(),
            until_ms: 0,
            waited_for: true,
            here,
        };
        Ok(Response::new(v1::AuthorityReply {
            name: "bbbbbbbbbbbbbbbb".to_owned(),
            before: "aaaaaaaaaaaaaaaa".to_owned(),
            stage: "trusting".to_owned(),
            certified: vec![
                waits("node", "b", 0, false),
                waits("role", "rollout-1", 17, true),
            ],
        }))
    }

    async fn show_authority(
        &self,
        _: Request<v1::ShowAuthorityRequest>,
    ) -> Result<Response<v1::AuthorityReply>, Status> {
        Ok(Response::new(v1::AuthorityReply {
            name: "aaaaaaaaaaaaaaaa".to_owned(),
            ..v1::AuthorityReply::default()
        }))
    }

    async fn restore_slot(
        &self,
        request: Request<v1::RestoreSlotRequest>,
    ) -> Result<Response<v1::RestoreSlotReply>, Status> {
        let v1::RestoreSlotRequest { node, pool, index } = request.into_inner();
        let slot = Some(v1::Slot { node, pool, index });
        Ok(Response::new(v1::RestoreSlotReply { slot }))
    }

    async fn pause(
        &self,
        _: Request<v1::PauseRequest>,
    ) -> Result<Response<v1::PauseReply>, Status> {
        let mut book = self.0.lock().unwrap();
        if book.status.pause.is_some() {
            let text = "nothing to do: the job is paused already";
            return Err(Status::failed_precondition(text));
        }
        book.asked.push("pause".to_owned());
        // Its step is over at once.
        let pause = Some(v1::Pause {
            state: "paused".to_owned(),
            after_step: book.status.step,
            since_ms: book.status.now_ms,
        });
        book.status.pause = pause.clone();
        let when = "when step 13 is committed and published".to_owned();
        Ok(Response::new(v1::PauseReply { when, pause }))
    }

    async fn resume(
        &self,
        _: Request<v1::ResumeRequest>,
    ) -> Result<Response<v1::PauseReply>, Status> {
        let mut book = self.0.lock().unwrap();
        book.asked.push("resume".to_owned());
        book.status.pause = None;
        let when = "now".to_owned();
        Ok(Response::new(v1::PauseReply { when, pause: None }))
    }

    async fn restart(
        &self,
        request: Request<v1::RestartRequest>,
    ) -> Result<Response<v1::RestartReply>, Status> {
        let v1::RestartRequest { role, index } = request.into_inner();
        let what = index.map_or(role.clone(), |index| format!("{role}-{index}"));
        let mut book = self.0.lock().unwrap();
        if book.busy > 0 {
            book.busy -= 1;
            let text = format!("a restart of {role} {UNDER_WAY}");
            return Err(Status::failed_precondition(text));
        }
        book.asked.push(format!("restart {what}"));
        let when = "now".to_owned();
        Ok(Response::new(v1::RestartReply { what, when }))
    }

    async fn logs(
        &self,
        request: Request<v1::LogsRequest>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        let request = request.into_inner();
        let name = format!("{}-{}", request.role, request.index);
        let text = self.0.lock().unwrap().logs.get(&name).cloned();
        let unknown = || Status::invalid_argument(format!("there is no {name}"));
        let text = text.ok_or_else(unknown)?;
        let from = usize::try_from(request.from.unwrap_or(0)).unwrap();
        // In parts that are cut within lines.
        let data = text.into_bytes().split_off(from);
        let parts = data.chunks(7).enumerate();
        let parts = parts.map(|(n, data)| {
            Ok(v1::LogPart {
                offset: (from + n * 7) as u64,
                data: data.to_vec(),
                node: "a".to_owned(),
            })
        });
        let parts = tokio_stream::iter(parts.collect::<Vec<_>>());
        Ok(Response::new(match request.follow {
            true => Box::pin(parts.chain(tokio_stream::pending())),
            false => Box::pin(parts),
        }))
    }

    async fn inspect(
        &self,
        request: Request<v1::InspectRequest>,
    ) -> Result<Response<Self::InspectStream>, Status> {
        let v1::InspectRequest { role, index, what } = request.into_inner();
        let mut book = self.0.lock().unwrap();
        book.asked.push(format!("{what} of `{role}` {index:?}"));
        let mut parts = book.inside.clone();
        parts.retain(|p| {
            (role.is_empty() || role == p.role) && index.is_none_or(|index| index == p.index)
        });
        let parts = tokio_stream::iter(parts.into_iter().map(Ok));
        Ok(Response::new(Box::pin(parts)))
    }

    async fn stop(&self, _: Request<v1::StopRequest>) -> Result<Response<v1::StopReply>, Status> {
        self.0.lock().unwrap().stopped = true;
        Ok(Response::new(v1::StopReply {}))
    }

    async fn get_rules(
        &self,
        _: Request<v1::GetRulesRequest>,
    ) -> Result<Response<v1::Rules>, Status> {
        self.leads()?;
        Ok(Response::new(self.0.lock().unwrap().rules.clone()))
    }

    async fn get_history(
        &self,
        _: Request<v1::GetHistoryRequest>,
    ) -> Result<Response<Self::GetHistoryStream>, Status> {
        let parts = self.0.lock().unwrap().history.clone();
        let parts = tokio_stream::iter(parts.into_iter().map(Ok));
        Ok(Response::new(Box::pin(parts)))
    }

    async fn get_report(
        &self,
        _: Request<v1::GetReportRequest>,
    ) -> Result<Response<v1::Report>, Status> {
        Ok(Response::new(self.0.lock().unwrap().report.clone()))
    }
}

/// The fake has no trainer to take out, and any rollout.
fn quarantined(
    request: v1::QuarantineRequest,
    quarantined: bool,
) -> Result<Response<v1::QuarantineReply>, Status> {
    let v1::QuarantineRequest { role, index } = request;
    if role == "trainer" {
        return Err(Status::invalid_argument(format!(
            "a {role} gets no requests, so it cannot be quarantined; to give it a new process: \
             `robustctl restart {role}-{index}`"
        )));
    }
    Ok(Response::new(v1::QuarantineReply {
        role,
        index,
        quarantined,
    }))
}
