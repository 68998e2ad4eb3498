//! What the leader wants of a node's processes.
use super::actor::Actor;
use super::files::write_job;
use super::memory::Started;
use super::starting::{HeldBack, Start};
use super::{NodeEnd, NodeError};
use crate::launcher::{self, Depth, Look, Looks, Running};
use crate::telemetry::Samples;
use crate::worker::Life;
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_message::Body as Up;
use robust_shared::fault::Fault;
use robust_shared::ids::{Generation, Incarnation, InstanceId, Role};
use std::path::Path;
use std::time::Duration;

impl Actor {
    pub(super) fn on_order(&mut self, order: Down) -> Option<Result<NodeEnd, NodeError>> {
        let order = self.starting.hold(order)?;
        self.carry_out(order)
    }

    fn carry_out(&mut self, order: Down) -> Option<Result<NodeEnd, NodeError>> {
        match order {
            Down::Spawn(spawn) => self.on_spawn(&spawn),
            Down::Kill(kill) => self.on_kill(Incarnation(kill.incarnation)),
            Down::Strike(strike) => self.on_strike(&strike),
            Down::Lose(_) => self.on_lose(),
            Down::Collect(collect) => self.on_collect(&collect),
            Down::Hold(order) => self.on_hold(order),
            Down::Give(order) => self.on_give(order),
            Down::Put(order) => self.on_put(order),
            Down::ReadLog(order) => self.on_read_log(order),
            Down::Inspect(order) => self.on_inspect(order),
            Down::KeepSpares(order) => self.on_keep_spares(&order),
            Down::Ended(ended) => return self.on_ended(&ended),
            Down::Identity(new) => self.on_identity(&new.pem),
            Down::Greeting(_) | Down::Welcome(_) | Down::Renew(_) | Down::Beat(_) => {
                tracing::warn!("the leader greets again within a session");
            }
        }
        None
    }

    fn on_hold(&mut self, order: v1::HoldShard) {
        let upstream = self.upstream.borrow().clone();
        let (Some(up), Some(upstream)) = (self.up.clone(), upstream) else {
            return;
        };
        let (held, exchange) = (self.held.clone(), self.exchange.clone());
        tokio::spawn(async move {
            let body = match held.hold(&upstream, &exchange, &order).await {
                Ok(shard) => Up::Held(shard),
                Err(not_held) => Up::NotHeld(not_held),
            };
            // Over a link that broke it is told when the node joins again.
            let _ = up.send(v1::NodeMessage { body: Some(body) });
        });
    }

    fn on_give(&mut self, order: v1::GiveShard) {
        let upstream = self.upstream.borrow().clone();
        let (Some(up), Some(upstream), Some(shard)) = (self.up.clone(), upstream, order.shard)
        else {
            return;
        };
        let held = self.held.clone();
        tokio::spawn(async move {
            if let Err(Some(not_held)) = held.give(&upstream, shard).await {
                let body = Some(Up::NotHeld(not_held));
                let _ = up.send(v1::NodeMessage { body });
            }
        });
    }

    fn on_put(&mut self, order: v1::PutShard) {
        let Some(up) = self.up.clone() else { return };
        let puts = self.puts.clone();
        tokio::spawn(async move { puts.put(order, up).await });
    }

    fn on_identity(&self, pem: &str) {
        if let Err(error) = self.exchange.identify(pem) {
            tracing::error!("the new certificate for other nodes cannot be used: {error}");
        }
    }

    fn on_spawn(&mut self, spawn: &v1::SpawnRole) {
        let incarnation = Incarnation(spawn.incarnation);
        // Asked again after a break: the answer was lost, not the order.
        if let Some(started) = self.memory.started.get(&incarnation.0) {
            return self.say_spawned(incarnation, started.pid);
        }
        // The same, and the answer is yet to come.
        if self.starting.has(incarnation) {
            return;
        }
        if let Err(reason) = self.begin(incarnation, spawn) {
            self.say_not_spawned(incarnation, reason);
        }
    }

    /// Begins a start, whose end is an event.
    fn begin(&mut self, incarnation: Incarnation, spawn: &v1::SpawnRole) -> Result<(), String> {
        let role: Role = spawn.role.parse().map_err(|e| format!("{e}"))?;
        let id = InstanceId {
            role,
            index: spawn.index,
        };
        let plan = self.plan.as_ref().ok_or("the job's files are not here")?;
        let plan = plan.as_ref().map_err(ToString::to_string)?;
        let snapshots = self.state.snapshots();
        crate::state::make_snapshots(&snapshots).map_err(|e| e.to_string())?;
        crate::state::remove_of_earlier_boots(&snapshots).map_err(|e| e.to_string())?;
        if !spawn.job.is_empty() && self.revision != Some(spawn.revision) {
            let path = self.state.job_revision(spawn.revision);
            write_job(&self.state, &path, &spawn.job).map_err(|e| e.to_string())?;
            self.revision = Some(spawn.revision);
        }
        let life = Life {
            id,
            incarnation,
            generation: Generation(spawn.generation),
            revision: spawn.revision,
            pool: spawn.pool.clone(),
            place: spawn.place,
        };
        self.spares.wait();
        let identity = Some(spawn.identity.clone()).filter(|pem| !pem.is_empty());
        let spec = plan.spec(&life, identity);
        self.starting.begin(incarnation);
        let (launcher, gate, starts) = (
            self.launcher.clone(),
            self.gate.clone(),
            self.starts.clone(),
        );
        tokio::task::spawn_blocking(move || {
            let started = gate.pass(|| launcher.spawn(spec).map_err(|e| e.to_string()));
            let running = started.unwrap_or_else(|| Err("its node ends".to_owned()));
            let start = Start {
                incarnation,
                id,
                running,
            };
            // When the node has ended it was killed with all others.
            let _ = starts.send(start);
        });
        Ok(())
    }

    /// Something is started, or is not; then comes what waited for that.
    pub(super) fn on_start(&mut self, start: Start) -> Option<Result<NodeEnd, NodeError>> {
        let Start {
            incarnation,
            id,
            running,
        } = start;
        let HeldBack { orders, end } = self.starting.started(incarnation);
        match running {
            Ok(running) => self.on_started(incarnation, id, running),
            Err(reason) => self.say_not_spawned(incarnation, reason),
        }
        if let Some((exit, tail_of_log)) = end {
            self.on_exited(incarnation, &exit, tail_of_log);
        }
        let ends = orders.into_iter().find_map(|order| self.carry_out(order));
        self.answer_greeting();
        ends
    }

    fn on_started(&mut self, incarnation: Incarnation, id: InstanceId, running: Running) {
        let Running { pid, start_time } = running;
        let started = Started {
            id,
            pid,
            start_time,
        };
        self.memory.note(incarnation, Some(started));
        self.remember();
        if let Some(telemetry) = &self.telemetry {
            telemetry.watch(incarnation, pid);
        }
        self.say_spawned(incarnation, pid);
    }

    fn say_spawned(&self, incarnation: Incarnation, pid: u32) {
        let incarnation = incarnation.0;
        self.say(Up::Spawned(v1::RoleSpawned { incarnation, pid }));
    }

    fn say_not_spawned(&self, incarnation: Incarnation, reason: String) {
        let incarnation = incarnation.0;
        self.say(Up::NotSpawned(v1::RoleNotSpawned {
            incarnation,
            reason,
        }));
    }

    /// An end is told of once it is seen; one that nobody knows here was told, or is told now.
    fn on_kill(&mut self, incarnation: Incarnation) {
        if !self.memory.started.contains_key(&incarnation.0) {
            return self.say(Up::Exited(v1::RoleExited {
                incarnation: incarnation.0,
                exit: None,
                tail_of_log: String::new(),
            }));
        }
        self.launcher.kill(incarnation);
    }

    fn on_strike(&mut self, order: &v1::StrikeRole) {
        let incarnation = Incarnation(order.incarnation);
        let struck = match order.fault.parse::<Fault>() {
            Ok(fault) => self.afflictions.strike(&self.launcher, incarnation, &fault),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = struck {
            tracing::warn!("{incarnation} is not struck by `{}`: {why}", order.fault);
        }
    }

    /// As if the machine were gone: processes, what is in its memory, and this daemon.
    fn on_lose(&mut self) -> ! {
        tracing::warn!("this node is lost on request");
        self.clean_up();
        std::process::abort()
    }

    fn on_collect(&self, order: &v1::CollectEvidence) {
        let Some(started) = self.memory.started.get(&order.incarnation) else {
            return;
        };
        let incarnation = Incarnation(order.incarnation);
        let limit = Duration::from_millis(order.limit_ms.into());
        let (pid, gently, evidence) = (started.pid, order.gently, self.evidence.clone());
        tokio::task::spawn_blocking(move || {
            // When the node ends nobody wants to know.
            let _ = evidence.send((incarnation, launcher::evidence(pid, limit, gently)));
        });
    }

    fn on_read_log(&self, order: v1::ReadLog) {
        let (Some(up), logs) = (self.up.clone(), self.state.logs()) else {
            return;
        };
        tokio::task::spawn_blocking(move || {
            let read = read_log(&logs, &order);
            // Over a link that broke nobody waits for it any more.
            let _ = up.send(v1::NodeMessage {
                body: Some(Up::LogRead(read)),
            });
        });
    }

    fn on_inspect(&self, order: v1::InspectRole) {
        let Some(up) = self.up.clone() else { return };
        let mut running = self.launcher.running().into_iter();
        let running = running.find(|(i, _)| i.0 == order.incarnation);
        let (looks, running) = (self.looks.clone(), running.map(|(_, process)| process));
        tokio::spawn(async move {
            let inspected = inspected(&looks, order, running).await;
            // Over a link that broke nobody waits for it any more.
            let _ = up.send(v1::NodeMessage {
                body: Some(Up::Inspected(inspected)),
            });
        });
    }

    fn on_ended(&mut self, ended: &v1::JobEnded) -> Option<Result<NodeEnd, NodeError>> {
        self.kill_all();
        if !ended.over {
            tracing::info!("the leader stopped the job and may go on with it: waiting");
            return None;
        }
        tracing::info!("the job is over");
        Some(Ok(NodeEnd::JobOver))
    }
}

/// What a process of this node does.
async fn inspected(
    looks: &Looks,
    order: v1::InspectRole,
    running: Option<Running>,
) -> v1::RoleInspected {
    let millis = |ms: u32| Duration::from_millis(ms.into());
    let found = match (running, Depth::of_word(&order.what)) {
        (None, _) => Err("its process is over, or is not started yet".to_owned()),
        (_, None) => Err(format!(
            "the daemon of its node knows no way to look named `{}`",
            order.what
        )),
        (Some(running), Some(depth)) => {
            let (limit, stop) = (millis(order.limit_ms), millis(order.stop_ms));
            looks.at(running, Look { depth, limit, stop }).await
        }
    };
    let ticket = order.ticket;
    match found {
        Ok(processes) => v1::RoleInspected {
            ticket,
            processes,
            error: String::new(),
        },
        Err(error) => v1::RoleInspected {
            ticket,
            processes: Vec::new(),
            error,
        },
    }
}

fn read_log(logs: &Path, order: &v1::ReadLog) -> v1::LogRead {
    // Its name is made of a role's, so that no order names a file elsewhere.
    let role = order.role.parse::<Role>().map_err(|e| e.to_string());
    let read = role.and_then(|role| {
        let index = order.index;
        let path = logs.join(format!("{}.log", InstanceId { role, index }));
        launcher::page(&path, order.offset, order.bytes).map_err(|e| e.to_string())
    });
    let (page, error) = match read {
        Ok(page) => (page, String::new()),
        Err(error) => (launcher::LogPage::default(), error),
    };
    v1::LogRead {
        ticket: order.ticket,
        data: page.data,
        size: page.size,
        error,
    }
}

/// Samples as the leader is told of them.
pub(super) fn samples(samples: Samples) -> v1::NodeSamples {
    let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
    let role = |s: &crate::telemetry::ProcessSample| v1::RoleUsage {
        incarnation: s.incarnation.0,
        busy_us: micros(s.usage.busy),
        rss_bytes: s.usage.rss_bytes,
        disk_read_bytes: s.usage.disk_read_bytes,
        disk_write_bytes: s.usage.disk_write_bytes,
        accelerator_us: s.usage.accelerator.map(micros),
        gpu_percent: s.device.and_then(|d| d.percent),
        gpu_memory_bytes: s.device.and_then(|d| d.memory_bytes),
        gpu_memory_total_bytes: s.device.and_then(|d| d.memory_total_bytes),
        gpu_celsius: s.device.and_then(|d| d.celsius),
    };
    let device = |f: crate::telemetry::DeviceFinding| v1::DeviceReport {
        device: f.device,
        // A finding is an enum and a text: it always encodes.
        finding: serde_json::to_string(&f.finding).unwrap_or_default(),
        users: f.users.iter().map(|i| i.0).collect(),
    };
    v1::NodeSamples {
        roles: samples.processes.iter().map(role).collect(),
        devices: samples.devices.findings.into_iter().map(device).collect(),
    }
}
