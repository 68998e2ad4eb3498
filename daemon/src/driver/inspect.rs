//! What a process of a role does now, and whether it answers: asked by operators.
//!
//! ```text
//!  Inspect ──┬─ here ──► a thread looks at the process ─────────────────► answer
//!            └─ there ─► order to the node's daemon ── RoleInspected ───► answer
//!  Probe ────┬─ Ping over its link ── Pong ──┬─────────────────────────► answer
//!            └─ of an engine, a token ───────┘
//! ```
//! The core hears of none of it: what operators see is no evidence, and who answers them not is under no suspicion. A
//! node that does not answer leaves whoever asked waiting, who has a limit of its own.
use super::Driver;
use super::hands::Process;
use super::nodes::Remote;
use crate::launcher::{Depth, Look, Looks, Running};
use crate::links::Links;
use crate::probe;
use robust_proto::v1::{self, host_message, leader_message::Body as Down};
use robust_shared::core::Core;
use robust_shared::ids::{Incarnation, InstanceId, NodeId};
use robust_shared::wire::ProbeTarget;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A debugger stops no process for longer than this,
const STOP_AT_MOST: Duration = Duration::from_secs(2);
/// nor for longer than one part of so many of the shortest time in which a rule finds fault with it,
const PART_OF_PATIENCE: u32 = 4;
/// and below this it would be cut off before it has said anything.
const STOP_AT_LEAST: Duration = Duration::from_millis(200);
/// How long an answer to a probe is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Where what was found goes.
pub type InspectAnswer = oneshot::Sender<Result<Vec<v1::InspectedProcess>, InspectError>>;
/// Where the answers to probes go.
pub type ProbeAnswer = oneshot::Sender<Result<Vec<v1::ProbeAnswer>, InspectError>>;

/// Why nothing is known of a process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// It is no more.
    #[error("its process is over, or is not started yet")]
    Gone,
    /// The job does not run.
    #[error("nothing runs that could be looked at: {state}")]
    NothingRuns {
        /// What the job does instead.
        state: String,
    },
    /// Its node is not linked.
    #[error("it runs on node `{node}`, which is not joined now; try again when it is")]
    Away {
        /// The node's name.
        node: String,
    },
    /// Its node's daemon cannot look.
    #[error("the daemon of node `{node}` is of an earlier build, which cannot look inside")]
    Former {
        /// The node's name.
        node: String,
    },
    /// A rule is too strict for a debugger.
    #[error(
        "no debugger stops it: a rule finds fault with {id} when it does nothing for {patience:?}, and a debugger needs \
         more than a part of that; see `robustctl rules`"
    )]
    NoPatience {
        /// Which instance.
        id: InstanceId,
        /// The shortest time in which a rule does.
        patience: Duration,
    },
    /// It could not be looked at.
    #[error("{0}")]
    Failed(String),
}

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Inspecting {
    looks: Looks,
    /// For the word of another node, which no other one gives.
    away: HashMap<u64, (NodeId, InspectAnswer)>,
    /// For a Pong.
    pings: HashMap<u64, Ping>,
}

#[derive(Debug)]
struct Ping {
    whom: Incarnation,
    sent: Instant,
    answer: oneshot::Sender<Duration>,
}

impl Inspecting {
    /// A process that is no more answers nothing.
    pub fn forget(&mut self, incarnation: Incarnation) {
        self.pings.retain(|_, ping| ping.whom != incarnation);
    }

    /// Those that nobody waits for any more are let go.
    fn tidy(&mut self) {
        self.away.retain(|_, (_, answer)| !answer.is_closed());
        self.pings.retain(|_, ping| !ping.answer.is_closed());
    }
}

impl Driver {
    pub(super) fn on_inspect(
        &mut self,
        incarnation: Incarnation,
        depth: Depth,
        answer: InspectAnswer,
    ) {
        self.inspecting.tidy();
        // Whoever asked may have left, then and below.
        match self.begin_look(incarnation, depth) {
            Ok(Begun::Here(running, look)) => {
                let looks = self.inspecting.looks.clone();
                tokio::spawn(async move {
                    let found = looks.at(running, look).await;
                    let _ = answer.send(found.map_err(InspectError::Failed));
                });
            }
            Ok(Begun::There(node, ticket)) => {
                self.inspecting.away.insert(ticket, (node, answer));
            }
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    fn begin_look(
        &mut self,
        incarnation: Incarnation,
        depth: Depth,
    ) -> Result<Begun, InspectError> {
        let process = self.processes.get(&incarnation).copied();
        let Some(Process { node, .. }) = process else {
            return Err(InspectError::Gone);
        };
        let look = Look {
            depth,
            limit: depth.limit(),
            stop: match depth {
                Depth::Native => may_be_stopped(&self.core, incarnation)?,
                Depth::Threads | Depth::Stacks => Duration::ZERO,
            },
        };
        if node == NodeId::LEADER {
            let mut running = self.here.launcher.running().into_iter();
            let found = running.find(|(of, _)| *of == incarnation);
            let (_, running) = found.ok_or(InspectError::Gone)?;
            return Ok(Begun::Here(running, look));
        }
        let name = self.core.node(node).map(|n| n.name.clone());
        let name = name.unwrap_or_default();
        match self.nodes.get(node) {
            Some(remote) => remote.can_look(name)?,
            None => return Err(InspectError::Away { node: name }),
        }
        self.tasks += 1;
        let ticket = self.tasks;
        let remote: &mut Remote = self.nodes.remote(node);
        remote.order(Down::Inspect(v1::InspectRole {
            ticket,
            incarnation: incarnation.0,
            what: depth.word().to_owned(),
            limit_ms: millis(look.limit),
            stop_ms: millis(look.stop),
        }));
        Ok(Begun::There(node, ticket))
    }

    /// A node looked.
    pub(super) fn on_inspected(&mut self, node: NodeId, found: v1::RoleInspected) {
        let v1::RoleInspected {
            ticket,
            processes,
            error,
        } = found;
        let away = &mut self.inspecting.away;
        if away.get(&ticket).is_none_or(|(asked, _)| *asked != node) {
            return;
        }
        let Some((_, answer)) = away.remove(&ticket) else {
            return;
        };
        let found = match error.is_empty() {
            true => Ok(processes),
            false => Err(InspectError::Failed(error)),
        };
        let _ = answer.send(found);
    }

    pub(super) fn on_probe(&mut self, incarnation: Incarnation, serves: bool, answer: ProbeAnswer) {
        self.inspecting.tidy();
        let Some(id) = self.core.is_current(incarnation) else {
            // Whoever asked may have left.
            return drop(answer.send(Err(InspectError::Gone)));
        };
        let asked = self.ping(incarnation);
        let engine = self.engine(id, incarnation);
        tokio::spawn(async move {
            let engine = async {
                match engine {
                    Some(engine) => Some(engine.generated(serves).await),
                    None => None,
                }
            };
            let (link, engine) = tokio::join!(asked.answered(), engine);
            let answers = std::iter::once(link).chain(engine).collect();
            let _ = answer.send(Ok(answers));
        });
    }

    /// Asks over its link.
    fn ping(&mut self, whom: Incarnation) -> Asked {
        if !self.links.is_open(whom) {
            return Asked::Not(
                "it is not linked: its program is not up yet, or does not come back",
            );
        }
        if !knows_pings(&self.links, whom) {
            let text = "its program, or the daemon of its node, is of an earlier build, which cannot be asked";
            return Asked::Not(text);
        }
        self.tasks += 1;
        let number = self.tasks;
        let (answer, answered) = oneshot::channel();
        let ping = Ping {
            whom,
            sent: Instant::now(),
            answer,
        };
        self.inspecting.pings.insert(number, ping);
        // A link that breaks now answers nothing.
        self.links
            .send(whom, host_message::Body::Ping(v1::Ping { number }));
        Asked::Over(answered)
    }

    /// It answered.
    pub(super) fn on_pong(&mut self, from: Incarnation, number: u64) {
        let pings = &mut self.inspecting.pings;
        if pings.get(&number).is_some_and(|ping| ping.whom == from)
            && let Some(ping) = pings.remove(&number)
        {
            // Whoever asked may have left.
            let _ = ping.answer.send(ping.sent.elapsed());
        }
    }

    /// The way to ask an engine; none: it is none, or has no address.
    fn engine(&self, id: InstanceId, incarnation: Incarnation) -> Option<Engine> {
        let hello = self.links.hello(incarnation)?;
        let has_address = id.role.is_engine() && !hello.http_addr.is_empty();
        has_address.then(|| Engine {
            addr: hello.http_addr,
            key: self.parts.worker.token.engines().of_engine(incarnation.0),
            client: self.parts.worker.engine_client(),
        })
    }
}

/// Where a look is under way.
enum Begun {
    Here(Running, Look),
    There(NodeId, u64),
}

/// A role that was asked over its link, or why not.
enum Asked {
    Over(oneshot::Receiver<Duration>),
    Not(&'static str),
}

impl Asked {
    async fn answered(self) -> v1::ProbeAnswer {
        let over = match self {
            Self::Over(over) => over,
            Self::Not(why) => {
                return probed(ProbeTarget::Link, false, Duration::ZERO, why.to_owned());
            }
        };
        match tokio::time::timeout(ANSWER_WITHIN, over).await {
            Ok(Ok(took)) => probed(ProbeTarget::Link, true, took, "it answers".to_owned()),
            Ok(Err(_)) => {
                let text = "its process ended before it answered".to_owned();
                probed(ProbeTarget::Link, false, Duration::ZERO, text)
            }
            Err(_) => {
                let text = format!("it did not answer within {ANSWER_WITHIN:?}");
                probed(ProbeTarget::Link, false, ANSWER_WITHIN, text)
            }
        }
    }
}

/// What an engine is asked by.
struct Engine {
    addr: String,
    key: robust_identity::EngineKey,
    client: Option<robust_identity::EngineClient>,
}

impl Engine {
    async fn generated(self, serves: bool) -> v1::ProbeAnswer {
        let began = Instant::now();
        let said =
            probe::asked_to_generate(&self.addr, self.client.as_ref(), &self.key, ANSWER_WITHIN);
        let (ok, text) = match said.await {
            Ok(200) => (true, "it generated a token".to_owned()),
            Ok(503) if !serves => (
                true,
                "it takes no requests now, as is known, and says so (503)".to_owned(),
            ),
            Ok(status) => (false, format!("it generates nothing: HTTP status {status}")),
            Err(why) => (false, why),
        };
        probed(ProbeTarget::Engine, ok, began.elapsed(), text)
    }
}

fn probed(what: ProbeTarget, ok: bool, took: Duration, answer: String) -> v1::ProbeAnswer {
    v1::ProbeAnswer {
        what: what.word().to_owned(),
        ok,
        us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        answer,
    }
}

fn knows_pings(links: &Links, whom: Incarnation) -> bool {
    links.hello(whom).is_some_and(|hello| hello.answers_pings)
}

/// For how long a debugger may stop a process: while it does, no rule is to come near its end.
fn may_be_stopped(core: &Core, incarnation: Incarnation) -> Result<Duration, InspectError> {
    let id = core.is_current(incarnation).ok_or(InspectError::Gone)?;
    let patience = core.config().rules.least_patience(id.role);
    let stop = stop_within(patience);
    stop.ok_or(InspectError::NoPatience { id, patience })
}

/// The same by the shortest time of a rule; none: it leaves no time.
fn stop_within(patience: Duration) -> Option<Duration> {
    let stop = (patience / PART_OF_PATIENCE).min(STOP_AT_MOST);
    Some(stop).filter(|stop| *stop >= STOP_AT_LEAST)
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_debugger_stays_far_below_the_shortest_time_of_a_rule() {
        let of = |ms| stop_within(Duration::from_millis(ms));
        assert_eq!(of(300_000), Some(STOP_AT_MOST));
        assert_eq!(of(5_000), Some(Duration::from_millis(1_250)));
        assert_eq!(of(800), Some(STOP_AT_LEAST));
        assert_eq!(of(799), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_role_that_answers_not_is_given_up_in_its_time() {
        let (answer, over) = oneshot::channel();
        answer.send(Duration::from_micros(350)).unwrap();
        let said = Asked::Over(over).answered().await;
        assert_eq!((said.ok, said.us, said.what.as_str()), (true, 350, "link"));
        let (answer, over) = oneshot::channel();
        drop(answer);
        let said = Asked::Over(over).answered().await;
        assert_eq!(said.answer, "its process ended before it answered");
        let (_answer, over) = oneshot::channel();
        let said = Asked::Over(over).answered().await;
        assert_eq!((said.ok, said.us), (false, 5_000_000));
        assert_eq!(said.answer, "it did not answer within 5s");
    }

    #[test]
    fn why_nothing_is_known_is_said_in_a_sentence() {
        let node = "b".to_owned();
        let former = InspectError::Former { node }.to_string();
        assert!(former.contains("`b` is of an earlier build"), "{former}");
        let id = "agent-1".parse().unwrap();
        let patience = Duration::from_millis(500);
        let strict = InspectError::NoPatience { id, patience }.to_string();
        assert!(
            strict.contains("fault with agent-1 when it does nothing for 500ms"),
            "{strict}"
        );
    }
}
