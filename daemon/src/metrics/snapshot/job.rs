//! The job, what of it is durable, and its nodes.
use super::{Labels, Sheet, Snapshot, labels};
use robust_proto::v1;
use robust_shared::core::{IncidentOutcome, NodeState};
use robust_shared::wire::{JobState, ReplicaState, ServiceState, Word as _};
use std::fmt;

impl Snapshot {
    pub(super) fn job(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let s = &self.status;
        let info = labels([
            ("name", &*s.job),
            ("mode", &*s.mode),
            ("policy", &*s.policy),
            ("version", &*s.daemon_version),
        ]);
        sheet.gauges("job_info", "The job, always 1.", [(info, 1.0)])?;
        let states = JobState::ALL.iter().map(|state| {
            let is = f64::from(u8::from(s.state() == Some(*state)));
            (labels([("state", state.word())]), is)
        });
        sheet.gauges("job_state", "1 for the state the job is in.", states)?;
        let alarms = s.alarms.iter();
        let alarms: Vec<_> = alarms
            .map(|a| (labels([("kind", &*a.kind)]), 1.0))
            .collect();
        let help = "1 for what an operator must act on, such as a full disk.";
        sheet.gauges("alarm", help, alarms)?;
        let help = "Checkpoints skipped because an earlier one was still being written: the disk is slower \
                    than the steps. Normal: 0, or a few where checkpoints are frequent.";
        let skipped = [(Labels::new(), s.checkpoints_skipped)];
        sheet.counters("checkpoints_skipped", help, skipped)?;
        let plain = [
            ("step", "The last committed step.", s.step as f64),
            ("job_steps", "Steps of the whole job.", s.steps_total as f64),
            (
                "weight_version",
                "The last published version of the weights.",
                s.weight_version as f64,
            ),
            (
                "weight_bytes",
                "Bytes of one version.",
                s.weight_bytes as f64,
            ),
            (
                "reward",
                "Mean reward of the last committed step.",
                s.reward,
            ),
            (
                "step_duration_seconds",
                "Time between the last two committed steps.",
                s.step_seconds,
            ),
            (
                "job_start_time_seconds",
                "When the job began, as Unix time.",
                s.started_ms as f64 / 1e3,
            ),
        ];
        for (name, help, value) in plain {
            sheet.gauge(name, help, value)?;
        }
        self.training(sheet)
    }

    /// How the last committed step's training went. What the trainer does not say has no series.
    fn training(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let Some(step) = &self.status.last_step else {
            return Ok(());
        };
        let flat = step.flat_groups.zip(step.groups);
        let flat = flat.map(|(flat, groups)| f64::from(flat) / f64::from(groups.max(1)));
        let rows = [
            (
                "training_loss",
                "Loss of the last committed step.",
                Some(step.loss),
            ),
            (
                "training_grad_norm",
                "Norm of the last committed step's gradient before clipping.",
                Some(step.grad_norm),
            ),
            (
                "training_entropy_nats",
                "Mean entropy of the policy, where the trainer says it. Falling to 0: it explores no more.",
                step.entropy,
            ),
            (
                "training_kl_nats",
                "Mean divergence from the old policy, or from the reference where there is one, where the trainer says it.",
                step.kl,
            ),
            (
                "training_clip_ratio",
                "Share of tokens whose ratio was clipped, where the trainer says it.",
                step.clip_fraction,
            ),
            (
                "training_flat_groups_ratio",
                "Share of groups whose rewards are all the same: they teach nothing.",
                flat,
            ),
            (
                "training_length_tokens",
                "Mean number of tokens generated for a trajectory of the last committed step.",
                step.mean_length,
            ),
            (
                "training_staleness_versions",
                "Versions from the oldest weights used for the last committed step to the newest.",
                Some(step.staleness as f64),
            ),
        ];
        for (name, help, value) in rows {
            sheet.gauges(name, help, value.map(|value| (Labels::new(), value)))?;
        }
        Ok(())
    }

    pub(super) fn work(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let s = &self.status;
        let open = |i: &&v1::Incident| i.outcome() == Some(IncidentOutcome::Recovering);
        let open = s.incidents.iter().filter(open).count();
        let help = "Incidents that are not over.";
        sheet.gauge("incidents_open", help, open as f64)?;
        let help = "Training steps lost under way and done again.";
        let repeated = [(Labels::new(), s.steps_repeated)];
        sheet.counters("steps_repeated", help, repeated)?;
        let trajectories = [
            ("in_flight", s.trajectories_in_flight),
            ("finished", s.trajectories_finished),
        ];
        let trajectories = trajectories.map(|(state, n)| (labels([("state", state)]), n as f64));
        let help = "Trajectories held by agent workers, and finished but not yet trained on.";
        sheet.gauges("trajectories", help, trajectories)?;
        let lost = [
            ("stale", s.trajectories_stale),
            ("task_restart", s.trajectories_discarded),
        ];
        let lost = lost.map(|(cause, n)| (labels([("cause", cause)]), n));
        let help = "Trajectories thrown away and generated again: too old to train on, which is \
                    rare unless an engine serves old weights; or by policy `task`.";
        sheet.counters("trajectories_discarded", help, lost)?;
        let back = [(Labels::new(), s.trajectories_given_back)];
        let help = "Times that an agent worker gave a trajectory back, because its tool or environment \
                    failed by no doing of the model's: no sample, and it goes on elsewhere. Normal: 0.";
        sheet.counters("trajectories_given_back", help, back)
    }

    pub(super) fn services(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let services = &self.status.services;
        if services.is_empty() {
            return Ok(());
        }
        let row = |s: &v1::ServiceStatus| {
            let index = s.index.to_string();
            labels([("service", &*s.name), ("index", &index)])
        };
        let is_up = |s: &v1::ServiceStatus| s.state().is_some_and(ServiceState::is_up);
        let up = services
            .iter()
            .map(|s| (row(s), f64::from(u8::from(is_up(s)))));
        let help = "1 where a process of a service is up. Normal: 1.";
        sheet.gauges("service_up", help, up)?;
        let help = "Times that a process of a service was started again. Normal: 0.";
        let restarts = services.iter().map(|s| (row(s), u64::from(s.restarts)));
        sheet.counters("service_restarts", help, restarts)
    }

    pub(super) fn durable(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        if let Some(of) = &self.status.replicas {
            let safe = f64::from(u8::from(of.state() == Some(ReplicaState::Safe)));
            let help = "1 where other nodes hold every shard of the last snapshot.";
            sheet.gauge("snapshot_replicated", help, safe)?;
        }
        let Some(of) = &self.status.remote else {
            return Ok(());
        };
        let help = "The step of the last checkpoint in the object store.";
        let step = of.step.map(|step| (Labels::new(), step as f64));
        sheet.gauges("remote_checkpoint_step", help, step)?;
        let store = || labels([("url", &*of.url)]);
        let rows = [
            (
                "remote_sent_bytes",
                "Bytes sent to the object store.",
                of.sent_bytes,
            ),
            (
                "remote_checkpoints_skipped",
                "Checkpoints not sent because an earlier one was on its way. Normal: 0.",
                of.skipped,
            ),
            (
                "remote_upload_failures",
                "Uploads that failed. Normal: 0.",
                of.failed,
            ),
        ];
        for (name, help, value) in rows {
            sheet.counters(name, help, [(store(), value)])?;
        }
        Ok(())
    }

    pub(super) fn ettr(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let s = &self.status;
        let by = |window: Option<&str>| {
            let mut all = labels([("mode", &*s.mode), ("policy", &*s.policy)]);
            all.extend(window.map(|w| ("window", w.to_owned())));
            all
        };
        let ettr = [
            (by(Some("sliding")), s.ettr_sliding),
            (by(Some("total")), s.ettr),
        ];
        let help = "Effective training time ratio over the last five minutes and since the begin.";
        sheet.gauges("ettr_ratio", help, ettr)?;
        let help = "ETTR since the begin, less the time whose result was thrown away.";
        sheet.gauges("goodput_ratio", help, [(by(None), s.goodput)])
    }

    pub(super) fn nodes(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let nodes = &self.status.nodes;
        if nodes.is_empty() {
            return Ok(());
        }
        let states = NodeState::ALL.iter().map(|state| {
            let count = nodes.iter().filter(|n| n.state() == Some(*state));
            (labels([("state", state.word())]), count.count() as f64)
        });
        sheet.gauges("nodes", "Nodes of the job, by their state.", states)?;
        let cordoned = nodes.iter().filter(|n| n.cordoned).count();
        let help = "Nodes on which nothing new is started.";
        sheet.gauge("nodes_cordoned", help, cordoned as f64)?;
        let faults = nodes
            .iter()
            .filter(|n| n.state() != Some(NodeState::Awaited));
        let faults: Vec<_> = faults
            .map(|n| (labels([("node", n.name.as_str())]), f64::from(n.faults)))
            .collect();
        let help =
            "Faults of a node's own, of which older ones count less; healthy is 0, now and then 1.";
        sheet.gauges("node_faults", help, faults)?;
        let lost = nodes.iter().map(|n| n.lost.len()).sum::<usize>();
        let draining = nodes.iter().map(|n| n.draining.len()).sum::<usize>();
        let slots = [("lost", lost), ("draining", draining)];
        let slots = slots.map(|(cause, n)| (labels([("cause", cause)]), n as f64));
        let help = "Slots that nothing is started in: lost until restored, or about to fail.";
        sheet.gauges("slots_unavailable", help, slots)
    }
}
