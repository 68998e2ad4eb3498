//! What operators' tools ask of the daemon.
use super::joins::{Joins, on_disk};
use super::revoked::Revoked;
use super::rights::Caller;
use super::trajectories::{Named, Wanted};
use super::words::{ending, event, misanswered, paused, refused, role, target, unreadable};
use super::{audit, check, history, logs, phases, trajectories};
use crate::audit::Audit;
use crate::driver::{Change, Clock, OperatorEvent, RecentPhases};
use crate::nodes::Authorities;
use crate::notes::Notes;
use crate::report::{report, some_lines};
use crate::state::StateDir;
use crate::store::Store;
use crate::tell::Tell;
use crate::texts::Texts;
use crate::witness::Live;
use robust_proto::v1::{self, control_server::Control, revoke_join_request::What};
use robust_shared::core::{Event, Reply, Request as CoreRequest};
use robust_shared::ids::{Role, Step, TrajectoryId};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

/// Events read from the store at a time.
const PAGE: usize = 256;

/// The newest status; replaced as a whole.
pub type StatusFeed = watch::Receiver<Arc<v1::Status>>;

/// The service operators' tools talk to. It reads the newest status and the store; wishes go to the
/// driver.
#[derive(Clone)]
pub struct ControlService {
    /// The way to the driver.
    pub driver: Tell<OperatorEvent>,
    /// Events and figures of the past.
    pub store: Store,
    /// Where the job's files are.
    pub state: StateDir,
    /// The newest status.
    pub status: StatusFeed,
    /// What every instance did of late.
    pub phases: RecentPhases,
    /// Time as the driver has it.
    pub clock: Clock,
    /// Events as they happen, with their numbers.
    pub events: broadcast::Sender<(u64, Event)>,
    /// The detection rules in force.
    pub rules: watch::Receiver<Arc<v1::Rules>>,
    /// Trajectories that each step consumes.
    pub samples_per_step: u64,
    /// Those of one prompt: a group.
    pub samples_per_prompt: u32,
    /// What makes text of their tokens.
    pub texts: Texts,
    /// What was asked for.
    pub audit: Audit,
    /// What operators wrote beside incidents.
    pub notes: Notes,
    /// Whether this node's devices can be made to show something.
    pub has_test_devices: bool,
    /// Who may become a node; none where nobody can.
    pub joins: Option<Joins>,
    /// Tokens of persons that were taken back.
    pub revoked: Revoked,
    /// Certify nodes and roles; none where nothing of the job runs.
    pub authorities: Option<Authorities>,
    /// Whether there is a token without which no fault is injected on a protected job.
    pub has_break_glass: bool,
}

impl std::fmt::Debug for ControlService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ControlService")
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl ControlService {
    pub(super) fn tell(&self, event: OperatorEvent) -> Result<(), Status> {
        self.driver.tell(event).map_err(|_| ending())
    }

    /// Asks the core for something.
    pub(super) async fn request(&self, request: CoreRequest) -> Result<Reply, Status> {
        let (answer, answered) = oneshot::channel();
        self.tell(OperatorEvent::Ask { request, answer })?;
        let answer = answered.await.map_err(|_| ending())?;
        answer.map_err(|refusal| refused(&refusal))
    }

    /// What the controller has of a trajectory; none where none runs.
    async fn look(&self, id: TrajectoryId) -> Option<Live> {
        let (answer, answered) = oneshot::channel();
        self.tell(OperatorEvent::Look { id, answer }).ok()?;
        let (committed, open) = answered.await.ok()?;
        Some(Live { committed, open })
    }

    /// The same of several of one batch, in their order.
    async fn look_at(&self, ids: &[TrajectoryId]) -> Vec<Option<Live>> {
        let mut all: Vec<Option<Live>> = Vec::with_capacity(ids.len());
        for id in ids {
            let live = match all.last().cloned() {
                // Where no controller runs, or the batch is not open, there is as little of all the others.
                Some(none) if none.as_ref().is_none_or(|live| live.open.is_none()) => none,
                _ => self.look(*id).await,
            };
            all.push(live);
        }
        all
    }

    async fn change(
        &self,
        role: Role,
        change: Change,
    ) -> Result<Response<v1::ChangeReply>, Status> {
        let (answer, answered) = oneshot::channel();
        self.tell(OperatorEvent::Change {
            role,
            change,
            answer,
        })?;
        let answer = answered.await.map_err(|_| ending())?;
        let role = role.name().to_owned();
        match answer.map_err(|refusal| refused(&refusal))? {
            Reply::Scaled { from, to, when, .. } => Ok(Response::new(v1::ChangeReply {
                role,
                when,
                from,
                to,
                revision: 0,
            })),
            Reply::Updated { revision, when, .. } => Ok(Response::new(v1::ChangeReply {
                role,
                when,
                revision,
                ..Default::default()
            })),
            other => Err(misanswered(&other)),
        }
    }

    fn joins(&self) -> Result<Joins, Status> {
        let none = || {
            Status::failed_precondition(
                "this job takes no other nodes: start robustd with --listen-nodes",
            )
        };
        self.joins.clone().ok_or_else(none)
    }

    /// What files say of it is in the job's log, too, where there is one: another controller goes on with that.
    async fn kept(&self) -> Result<(), Status> {
        let kept = self.store.sync().await;
        kept.map_err(|e| Status::unavailable(format!("it is done here, and perhaps not kept: {e}")))
    }

    async fn set_quarantine(
        &self,
        request: v1::QuarantineRequest,
        out: bool,
    ) -> Result<Response<v1::QuarantineReply>, Status> {
        let (role, index) = (role(&request.role)?, request.index);
        let request = match out {
            true => CoreRequest::Quarantine { role, index },
            false => CoreRequest::Readmit { role, index },
        };
        self.request(request).await?;
        Ok(Response::new(v1::QuarantineReply {
            role: role.name().to_owned(),
            index,
            quarantined: out,
        }))
    }
}

/// Sends stored events, then new ones; ends when the client leaves.
async fn send_events(
    service: ControlService,
    request: v1::EventsRequest,
    to: tokio::sync::mpsc::Sender<Result<v1::Event, Status>>,
) -> Option<()> {
    // Subscribed before the store is read, so that nothing falls between.
    let mut live = service.events.subscribe();
    let mut next = request.since_seq.max(1);
    loop {
        loop {
            let page = match service.store.events_since(next, PAGE) {
                Ok(page) => page,
                Err(error) => {
                    to.send(Err(unreadable(error))).await.ok()?;
                    return None;
                }
            };
            let Some((last, _)) = page.last() else { break };
            next = last + 1;
            for (seq, stored) in &page {
                to.send(Ok(event(*seq, stored))).await.ok()?;
            }
        }
        if !request.follow {
            return Some(());
        }
        // Only the signal counts: what is new is read from the store, each once and in order.
        tokio::select! {
            () = to.closed() => return None,
            news = live.recv() => match news {
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return Some(()),
            },
        }
    }
}

#[tonic::async_trait]
impl Control for ControlService {
    type WatchStream = Answers<v1::Status>;
    type PhasesStream = Answers<v1::PhasesPart>;
    type AuditStream = Answers<v1::AuditEntry>;
    type EventsStream = Answers<v1::Event>;
    type TrajectoriesStream = Answers<v1::Trajectory>;
    type GetStepStream = Answers<v1::StepAccount>;
    type CheckStoreStream = Answers<v1::StoreCheck>;
    type LogsStream = Answers<v1::LogPart>;
    type InspectStream = Answers<v1::InspectPart>;
    type GetHistoryStream = Answers<v1::History>;

    async fn get_status(
        &self,
        _: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::Status>, Status> {
        Ok(Response::new(self.status_with_notes()))
    }

    async fn create_join_token(
        &self,
        request: Request<v1::CreateJoinTokenRequest>,
    ) -> Result<Response<v1::CreateJoinTokenReply>, Status> {
        let created = self.joins()?.create(request.into_inner()).await?;
        self.kept().await?;
        Ok(Response::new(created))
    }

    async fn revoke_join(
        &self,
        request: Request<v1::RevokeJoinRequest>,
    ) -> Result<Response<v1::RevokeJoinReply>, Status> {
        let request = request.into_inner();
        let reply = match &request.what {
            Some(What::Token(id)) if Revoked::is_of_person(id) => {
                let (revoked, id) = (self.revoked.clone(), id.clone());
                on_disk(move || revoked.revoke(&id)).await?;
                v1::RevokeJoinReply {}
            }
            _ => self.joins()?.revoke(request).await?,
        };
        self.kept().await?;
        Ok(Response::new(reply))
    }

    async fn list_joins(
        &self,
        _: Request<v1::ListJoinsRequest>,
    ) -> Result<Response<v1::ListJoinsReply>, Status> {
        let revoked = self.revoked.list();
        let known = match self.joins() {
            Ok(joins) => joins.list(),
            // Persons have tokens of a job without other nodes, too.
            Err(_) if !revoked.is_empty() => v1::ListJoinsReply::default(),
            Err(nobody) => return Err(nobody),
        };
        Ok(Response::new(v1::ListJoinsReply { revoked, ..known }))
    }

    async fn rotate_authority(
        &self,
        request: Request<v1::RotateAuthorityRequest>,
    ) -> Result<Response<v1::AuthorityReply>, Status> {
        let rotated = self.on_rotate(request.into_inner()).await?;
        self.kept().await?;
        Ok(Response::new(rotated))
    }

    async fn show_authority(
        &self,
        _: Request<v1::ShowAuthorityRequest>,
    ) -> Result<Response<v1::AuthorityReply>, Status> {
        Ok(Response::new(self.on_show_authority()?))
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let interval = match request.into_inner().interval_ms {
            0 => Duration::from_secs(1),
            ms => Duration::from_millis(u64::from(ms.clamp(50, 60_000))),
        };
        let shown = self.clone();
        let ticks = tokio_stream::wrappers::IntervalStream::new(tokio::time::interval(interval));
        let statuses = ticks.map(move |_| Ok(shown.status_with_notes()));
        Ok(Response::new(Box::pin(statuses)))
    }

    async fn phases(
        &self,
        request: Request<v1::PhasesRequest>,
    ) -> Result<Response<Self::PhasesStream>, Status> {
        let wanted = phases::Wanted::from_wire(&request.into_inner())?;
        let (to, parts) = tokio::sync::mpsc::channel(1);
        tokio::spawn(phases::send(self.phases.clone(), self.clock, wanted, to));
        Ok(Response::new(Box::pin(ReceiverStream::new(parts))))
    }

    async fn events(
        &self,
        request: Request<v1::EventsRequest>,
    ) -> Result<Response<Self::EventsStream>, Status> {
        let (to, events) = tokio::sync::mpsc::channel(PAGE);
        tokio::spawn(send_events(self.clone(), request.into_inner(), to));
        Ok(Response::new(Box::pin(ReceiverStream::new(events))))
    }

    async fn trajectories(
        &self,
        request: Request<v1::TrajectoriesRequest>,
    ) -> Result<Response<Self::TrajectoriesStream>, Status> {
        let wanted = Wanted::from_wire(&request.into_inner())?;
        let (to, trajectories) = tokio::sync::mpsc::channel(PAGE);
        let (store, texts) = (self.store.clone(), self.texts.clone());
        let named: Option<Named> = match wanted.named(self.samples_per_prompt) {
            Some(ids) => {
                let live = self.look_at(&ids).await;
                Some(ids.into_iter().zip(live).collect())
            }
            None => None,
        };
        if wanted.has_text() {
            tokio::spawn(texts.clone().let_go_when_idle());
        }
        tokio::task::spawn_blocking(move || wanted.send(&store, &texts, named, &to));
        Ok(Response::new(Box::pin(ReceiverStream::new(trajectories))))
    }

    async fn get_step(
        &self,
        request: Request<v1::GetStepRequest>,
    ) -> Result<Response<Self::GetStepStream>, Status> {
        let step = Step(request.into_inner().step);
        let (to, parts) = tokio::sync::mpsc::channel(PAGE);
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || trajectories::send_step(&store, step, &to));
        Ok(Response::new(Box::pin(ReceiverStream::new(parts))))
    }

    async fn get_steps(
        &self,
        request: Request<v1::GetStepsRequest>,
    ) -> Result<Response<v1::GetStepsReply>, Status> {
        let after = request.into_inner().after.map(Step);
        let (store, began_ms) = (self.store.clone(), self.status.borrow().started_ms);
        let read = tokio::task::spawn_blocking(move || some_lines(&store, began_ms, after));
        let lines = read.await.map_err(|e| Status::internal(e.to_string()))?;
        let lines = lines.map_err(unreadable)?;
        Ok(Response::new(v1::GetStepsReply { lines }))
    }

    async fn check_store(
        &self,
        _: Request<v1::CheckStoreRequest>,
    ) -> Result<Response<Self::CheckStoreStream>, Status> {
        let (to, words) = tokio::sync::mpsc::channel(PAGE);
        let (store, checkpoints) = (self.store.clone(), self.state.checkpoints());
        tokio::task::spawn_blocking(move || check::send(&store, &checkpoints, &to));
        Ok(Response::new(Box::pin(ReceiverStream::new(words))))
    }

    async fn inject(
        &self,
        request: Request<v1::InjectRequest>,
    ) -> Result<Response<v1::InjectReply>, Status> {
        let caller = request.extensions().get::<Caller>().map(Caller::rights);
        let reply = self.on_inject(request.into_inner(), caller).await?;
        Ok(Response::new(reply))
    }

    async fn disarm(
        &self,
        request: Request<v1::DisarmRequest>,
    ) -> Result<Response<v1::DisarmReply>, Status> {
        let reply = self.on_disarm(request.into_inner()).await?;
        Ok(Response::new(reply))
    }

    async fn audit(
        &self,
        request: Request<v1::AuditRequest>,
    ) -> Result<Response<Self::AuditStream>, Status> {
        let (to, entries) = tokio::sync::mpsc::channel(PAGE);
        tokio::spawn(audit::send(self.clone(), request.into_inner(), to));
        Ok(Response::new(Box::pin(ReceiverStream::new(entries))))
    }

    async fn note(
        &self,
        request: Request<v1::NoteRequest>,
    ) -> Result<Response<v1::NoteReply>, Status> {
        self.on_note(request).await.map(Response::new)
    }

    async fn quarantine(
        &self,
        request: Request<v1::QuarantineRequest>,
    ) -> Result<Response<v1::QuarantineReply>, Status> {
        self.set_quarantine(request.into_inner(), true).await
    }

    async fn readmit(
        &self,
        request: Request<v1::QuarantineRequest>,
    ) -> Result<Response<v1::QuarantineReply>, Status> {
        self.set_quarantine(request.into_inner(), false).await
    }

    async fn scale(
        &self,
        request: Request<v1::ScaleRequest>,
    ) -> Result<Response<v1::ChangeReply>, Status> {
        let request = request.into_inner();
        let change = Change::Count(request.count);
        self.change(role(&request.role)?, change).await
    }

    async fn update(
        &self,
        request: Request<v1::UpdateRequest>,
    ) -> Result<Response<v1::ChangeReply>, Status> {
        let request = request.into_inner();
        if request.changes.is_empty() {
            return Err(Status::invalid_argument(
                "nothing is to change; name a `key=value`",
            ));
        }
        let change = Change::Values(request.changes);
        self.change(role(&request.role)?, change).await
    }

    async fn cordon(
        &self,
        request: Request<v1::CordonRequest>,
    ) -> Result<Response<v1::CordonReply>, Status> {
        let v1::CordonRequest { node, out } = request.into_inner();
        let name = node.clone();
        let request = match out {
            true => CoreRequest::Cordon { node },
            false => CoreRequest::Uncordon { node },
        };
        self.request(request).await?;
        Ok(Response::new(v1::CordonReply { node: name, out }))
    }

    async fn restore_slot(
        &self,
        request: Request<v1::RestoreSlotRequest>,
    ) -> Result<Response<v1::RestoreSlotReply>, Status> {
        let v1::RestoreSlotRequest { node, pool, index } = request.into_inner();
        let slot = v1::Slot {
            node: node.clone(),
            pool: pool.clone(),
            index,
        };
        let request = CoreRequest::RestoreSlot { node, pool, index };
        self.request(request).await?;
        Ok(Response::new(v1::RestoreSlotReply { slot: Some(slot) }))
    }

    async fn pause(
        &self,
        _: Request<v1::PauseRequest>,
    ) -> Result<Response<v1::PauseReply>, Status> {
        self.request(CoreRequest::Pause).await.and_then(paused)
    }

    async fn resume(
        &self,
        _: Request<v1::ResumeRequest>,
    ) -> Result<Response<v1::PauseReply>, Status> {
        self.request(CoreRequest::Resume).await.and_then(paused)
    }

    async fn restart(
        &self,
        request: Request<v1::RestartRequest>,
    ) -> Result<Response<v1::RestartReply>, Status> {
        let target = target(&request.into_inner())?;
        let request = CoreRequest::Restart { target };
        match self.request(request).await? {
            Reply::Restarting { target, when } => Ok(Response::new(v1::RestartReply {
                what: target.to_string(),
                when,
            })),
            other => Err(misanswered(&other)),
        }
    }

    async fn logs(
        &self,
        request: Request<v1::LogsRequest>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        let request = request.into_inner();
        let reader = logs::Reader::new(self.driver.clone(), &request)?;
        let (to, parts) = tokio::sync::mpsc::channel(logs::PARTS_AHEAD);
        tokio::spawn(reader.send(request, to));
        Ok(Response::new(Box::pin(ReceiverStream::new(parts))))
    }

    async fn inspect(
        &self,
        request: Request<v1::InspectRequest>,
    ) -> Result<Response<Self::InspectStream>, Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        let parts = self.on_inspect(request.into_inner(), caller).await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(parts))))
    }

    async fn stop(&self, _: Request<v1::StopRequest>) -> Result<Response<v1::StopReply>, Status> {
        self.tell(OperatorEvent::Stop)?;
        Ok(Response::new(v1::StopReply {}))
    }

    async fn get_rules(
        &self,
        _: Request<v1::GetRulesRequest>,
    ) -> Result<Response<v1::Rules>, Status> {
        Ok(Response::new(v1::Rules::clone(&self.rules.borrow())))
    }

    async fn forecast(
        &self,
        request: Request<v1::ForecastRequest>,
    ) -> Result<Response<v1::ForecastReply>, Status> {
        let reply = self.on_forecast(request.into_inner()).await?;
        Ok(Response::new(reply))
    }

    async fn get_history(
        &self,
        request: Request<v1::GetHistoryRequest>,
    ) -> Result<Response<Self::GetHistoryStream>, Status> {
        let cells = request.into_inner().cells;
        let (to, parts) = tokio::sync::mpsc::channel(PAGE);
        let (store, state) = (self.store.clone(), self.state.clone());
        let status = self.status.borrow().clone();
        tokio::task::spawn_blocking(move || history::send(&store, &state, &status, cells, &to));
        Ok(Response::new(Box::pin(ReceiverStream::new(parts))))
    }

    async fn get_report(
        &self,
        _: Request<v1::GetReportRequest>,
    ) -> Result<Response<v1::Report>, Status> {
        let status = self.status.borrow().clone();
        let mut report = report(&self.store, &status, self.samples_per_step).map_err(unreadable)?;
        self.notes.show(&mut report.incidents);
        Ok(Response::new(report))
    }
}
