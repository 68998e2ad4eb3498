//! What steers a job that runs: asked of the daemon, and its answer in words, for the command line and the console
//! alike.
//!
//! ```text
//!  commands/steer ──┐           ┌─► the daemon does it ───────► Done: a sentence, JSON
//!                   ├──► Steer ─┤
//!  console/act ─────┘           └─► the daemon looks ahead ───► a forecast: nothing is done
//! ```
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::who;
use robust_proto::v1::{self, forecast_act::Act};
use robust_shared::verbs;
use serde::Serialize;

/// A verb with all that it takes. Faults and the end of the job are asked for elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub enum Steer {
    /// Begin nothing beyond the step under way.
    Pause,
    /// Go on after a pause.
    Resume,
    /// New processes, without a fault.
    Restart(v1::RestartRequest),
    /// More or fewer instances.
    Scale(v1::ScaleRequest),
    /// New values for a role.
    Update(v1::UpdateRequest),
    /// Nothing new on a node, or again.
    Cordon(v1::CordonRequest),
    /// A lost slot is there again.
    RestoreSlot(v1::RestoreSlotRequest),
    /// An engine out of traffic.
    Quarantine(v1::QuarantineRequest),
    /// It may have traffic again.
    Readmit(v1::QuarantineRequest),
    /// Words beside an incident.
    Note(v1::NoteRequest),
}

/// What the daemon answered.
#[derive(Clone, Debug)]
pub struct Done {
    /// As a sentence.
    pub words: String,
    /// As JSON, in one line.
    pub json: String,
}

fn done<T: Serialize>(reply: &T, words: String) -> Result<Done, CliError> {
    let json = serde_json::to_string(reply).map_err(|e| CliError::unshown(&e))?;
    Ok(Done { words, json })
}

impl Steer {
    /// Has the daemon do it.
    pub async fn ask(self, endpoint: &Endpoint) -> Result<Done, CliError> {
        let mut client = endpoint.connect().await?;
        match self {
            Steer::Pause => {
                let reply = endpoint.ask(client.pause(v1::PauseRequest {})).await?;
                done(&reply, verbs::pause::DONE.say([&reply.when]))
            }
            Steer::Resume => {
                let reply = endpoint.ask(client.resume(v1::ResumeRequest {})).await?;
                done(&reply, verbs::resume::DONE.say([]))
            }
            Steer::Restart(request) => {
                let reply = endpoint.ask(client.restart(request)).await?;
                done(&reply, verbs::restart::DONE.say([&reply.what, &reply.when]))
            }
            Steer::Scale(request) => {
                let reply = endpoint.ask(client.scale(request)).await?;
                let (from, to) = (reply.from.to_string(), reply.to.to_string());
                let words = verbs::scale::DONE.say([&reply.role, &from, &to, &reply.when]);
                done(&reply, words)
            }
            Steer::Update(request) => {
                let changes = request.changes.join(", ");
                let reply = endpoint.ask(client.update(request)).await?;
                let revision = reply.revision.to_string();
                let words =
                    verbs::update::DONE.say([&reply.role, &changes, &revision, &reply.when]);
                done(&reply, words)
            }
            Steer::Cordon(request) => {
                let words = match request.out {
                    true => verbs::cordon::DONE,
                    false => verbs::uncordon::DONE,
                };
                let reply = endpoint.ask(client.cordon(request)).await?;
                done(&reply, words.say([&reply.node]))
            }
            Steer::RestoreSlot(request) => {
                let v1::RestoreSlotRequest { node, pool, index } = &request;
                let words = verbs::restore_slot::DONE.say([&index.to_string(), pool, node]);
                let reply = endpoint.ask(client.restore_slot(request)).await?;
                done(&reply, words)
            }
            Steer::Quarantine(request) => {
                let reply = endpoint.ask(client.quarantine(request)).await?;
                traffic(&reply)
            }
            Steer::Readmit(request) => {
                let reply = endpoint.ask(client.readmit(request)).await?;
                traffic(&reply)
            }
            Steer::Note(request) => {
                let incident = request.incident.to_string();
                let reply = endpoint.ask(client.note(request)).await?;
                let words = verbs::note::DONE.say([&reply.count.to_string(), &incident]);
                done(&reply, words)
            }
        }
    }

    /// What to ask of a forecast; none: nothing that runs is changed by it, or nobody looks ahead of it.
    pub fn ahead(self) -> Option<Act> {
        Some(match self {
            Steer::Pause => Act::Pause(v1::PauseRequest {}),
            Steer::Resume => Act::Resume(v1::ResumeRequest {}),
            Steer::Restart(request) => Act::Restart(request),
            Steer::Scale(request) => Act::Scale(request),
            Steer::Cordon(request) => Act::Cordon(request),
            Steer::RestoreSlot(request) => Act::RestoreSlot(request),
            Steer::Quarantine(request) => Act::Quarantine(request),
            Steer::Readmit(request) => Act::Readmit(request),
            Steer::Update(_) | Steer::Note(_) => return None,
        })
    }
}

/// An engine is out of traffic, or in again.
fn traffic(reply: &v1::QuarantineReply) -> Result<Done, CliError> {
    let words = match reply.quarantined {
        true => verbs::quarantine::DONE,
        false => verbs::readmit::DONE,
    };
    done(reply, words.say([&who(&reply.role, reply.index)]))
}
