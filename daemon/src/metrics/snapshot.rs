//! What is known at the moment of a scrape.
use super::labels;
use super::sheet::{Labels, Sheet};
use crate::telemetry::{HostSample, Seen};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use robust_proto::v1;
use robust_shared::hardware::Reading;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The states a job can be in, each a line of its own.
const STATES: [&str; 7] = [
    "starting",
    "running",
    "paused",
    "recovering",
    "completed",
    "stopped",
    "failed",
];

/// The last of everything.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub node: String,
    pub status: Arc<v1::Status>,
    pub devices: Vec<Seen>,
    pub driver_stuck: bool,
    pub host: Option<HostSample>,
}

#[derive(Debug)]
pub(super) struct SnapshotCollector(pub Arc<Mutex<Snapshot>>);

impl Collector for SnapshotCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sheet = Sheet(encoder);
        snapshot.job(&mut sheet)?;
        snapshot.durable(&mut sheet)?;
        snapshot.ettr(&mut sheet)?;
        snapshot.instances(&mut sheet)?;
        snapshot.pulls(&mut sheet)?;
        snapshot.instances_use(&mut sheet)?;
        snapshot.devices(&mut sheet)?;
        snapshot.devices_health(&mut sheet)?;
        snapshot.host(&mut sheet)
    }
}

impl Snapshot {
    pub fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            ..Self::default()
        }
    }

    fn job(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let s = &self.status;
        let info = labels([
            ("job", &*s.job),
            ("mode", &*s.mode),
            ("policy", &*s.policy),
            ("version", &*s.daemon_version),
        ]);
        sheet.gauges("job_info", "The job, always 1.", [(info, 1.0)])?;
        let states = STATES.map(|state| {
            let is = f64::from(u8::from(s.state == state));
            (labels([("state", state)]), is)
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
        ];
        for (name, help, value) in plain {
            sheet.gauge(name, help, value)?;
        }
        let trajectories = [
            ("in_flight", s.trajectories_in_flight),
            ("finished", s.trajectories_finished),
        ];
        let trajectories = trajectories.map(|(state, n)| (labels([("state", state)]), n as f64));
        let help = "Trajectories held by agent workers, and finished but not yet trained on.";
        sheet.gauges("trajectories", help, trajectories)?;
        let lost = [
            ("stale", s.trajectories_stale),
            ("task restart", s.trajectories_discarded),
        ];
        let lost = lost.map(|(cause, n)| (labels([("cause", cause)]), n));
        let help = "Trajectories thrown away and generated again: too old to train on, which is \
                    rare unless an engine serves old weights; or by policy `task`.";
        sheet.counters("trajectories_discarded", help, lost)
    }

    fn durable(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        if let Some(of) = &self.status.replicas {
            let safe = f64::from(u8::from(of.state == "safe"));
            let help = "1 where other nodes hold every shard of the last snapshot.";
            sheet.gauge("snapshot_replicated", help, safe)?;
        }
        let Some(of) = &self.status.remote else {
            return Ok(());
        };
        let help = "The step of the last checkpoint in the object store.";
        sheet.gauge("remote_checkpoint_step", help, of.step.unwrap_or(0) as f64)?;
        let store = || labels([("url", &*of.url)]);
        let rows = [
            (
                "remote_bytes",
                "Bytes sent to the object store.",
                of.sent_bytes,
            ),
            (
                "remote_skipped",
                "Checkpoints not sent because an earlier one was on its way. Normal: 0.",
                of.skipped,
            ),
            (
                "remote_failures",
                "Uploads that failed. Normal: 0.",
                of.failed,
            ),
        ];
        for (name, help, value) in rows {
            sheet.counters(name, help, [(store(), value)])?;
        }
        Ok(())
    }

    fn ettr(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
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

    /// One row for each instance, of the roles that have the figure.
    fn each<T>(&self, value: impl Fn(&v1::RoleStatus) -> Option<T>) -> Vec<(Labels, T)> {
        let row = |r: &v1::RoleStatus| {
            let index = r.index.to_string();
            let labels = labels([("role", &*r.role), ("index", &index)]);
            Some((labels, value(r)?))
        };
        self.status.roles.iter().filter_map(row).collect()
    }

    fn instances(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let up = self.each(|r| Some(f64::from(u8::from(r.state == "running"))));
        sheet.gauges("instance_up", "1 where the instance is at work.", up)?;
        let restarts = self.each(|r| Some(u64::from(r.restarts)));
        let help = "Restarts of the instance since the job began.";
        sheet.counters("instance_restarts", help, restarts)?;
        let engine = |r: &v1::RoleStatus| !matches!(&*r.role, "trainer" | "agent");
        let tokens = self.each(|r| engine(r).then_some(r.tokens_total));
        sheet.counters("tokens", "Tokens generated, by all lives.", tokens)?;
        let requests = self.each(|r| (r.role != "trainer").then_some(f64::from(r.running)));
        let help = "Requests a rollout runs, and trajectories an agent worker holds.";
        sheet.gauges("instance_requests", help, requests)?;
        let served = self.each(|r| (r.role != "agent").then_some(r.weight_version as f64));
        let help = "The version of the weights the instance serves.";
        sheet.gauges("instance_weight_version", help, served)
    }

    /// The running or last pull of each engine that pulled at all.
    fn pulls(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let pull = |value: fn(&v1::RoleStatus) -> f64| {
            self.each(|r| (r.pull_chunks_total > 0).then(|| value(r)))
        };
        let rows = [
            (
                "pull_version",
                "The version of the running or last pull.",
                pull(|r| r.pull_version as f64),
            ),
            (
                "pull_chunks",
                "Chunks of it that were verified.",
                pull(|r| r.pull_chunks as f64),
            ),
            (
                "pull_size_chunks",
                "Chunks of the whole version.",
                pull(|r| r.pull_chunks_total as f64),
            ),
            (
                "pull_fetched_bytes",
                "Bytes that came over the network for it.",
                pull(|r| r.pull_fetched as f64),
            ),
            (
                "pull_rate_bytes",
                "Bytes a second that came, over the last second of the pull; 1e9 is what others show as 1 GB/s.",
                pull(|r| r.pull_bytes_per_s),
            ),
        ];
        for (name, help, rows) in rows {
            sheet.gauges(name, help, rows)?;
        }
        let source = |r: &v1::RoleStatus| {
            let index = r.index.to_string();
            let pairs = [
                ("role", &*r.role),
                ("index", &index),
                ("source", &*r.pull_source),
            ];
            (!r.pull_source.is_empty()).then(|| (labels(pairs), 1.0))
        };
        let help = "Who sends it, or sent it last, always 1.";
        let sources: Vec<_> = self.status.roles.iter().filter_map(source).collect();
        sheet.gauges("pull_source_info", help, sources)
    }

    fn instances_use(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let cores = self.each(|r| Some(r.cpu_percent / 100.0));
        sheet.gauges("instance_cpu_cores", "Processor cores in use.", cores)?;
        let memory = self.each(|r| Some(r.rss_bytes as f64));
        let help = "Memory the instance's process holds.";
        sheet.gauges("instance_resident_memory_bytes", help, memory)?;
        let read = self.each(|r| Some(r.disk_read_bytes));
        let help = "Bytes its process read from disk.";
        sheet.counters("instance_disk_read_bytes", help, read)?;
        let written = self.each(|r| Some(r.disk_write_bytes));
        let help = "Bytes its process had written to disk.";
        sheet.counters("instance_disk_written_bytes", help, written)
    }

    /// One row for each device that has the figure.
    fn of_devices<T>(&self, value: impl Fn(&Reading) -> Option<T>) -> Vec<(Labels, T)> {
        let row = |seen: &Seen| {
            let device = seen.reading.index.to_string();
            let labels = labels([("node", &*self.node), ("device", &device)]);
            Some((labels, value(&seen.reading)?))
        };
        self.devices.iter().filter_map(row).collect()
    }

    /// The same with one more label.
    fn by<T: Copy, const N: usize>(
        &self,
        key: &'static str,
        values: impl Fn(&Reading) -> [(&'static str, Option<T>); N],
    ) -> Vec<(Labels, T)> {
        let flat = |(labels, values): (Labels, [(&'static str, Option<T>); N])| {
            values.into_iter().filter_map(move |(name, value)| {
                let mut labels = labels.clone();
                labels.push((key, name.to_owned()));
                Some((labels, value?))
            })
        };
        let rows = self.of_devices(|r| Some(values(r)));
        rows.into_iter().flat_map(flat).collect()
    }

    fn devices(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let up = self.of_devices(|r| Some(f64::from(u8::from(r.lost.is_none()))));
        sheet.gauges("device_up", "1 where the device answers.", up)?;
        let busy = self.by("unit", |r| {
            [
                ("any", r.util_percent.map(|p| p / 100.0)),
                ("sm", r.sm_percent.map(|p| p / 100.0)),
                ("tensor", r.tensor_percent.map(|p| p / 100.0)),
            ]
        });
        let help = "Part of the time that any kernel, multiprocessors or tensor cores were busy.";
        sheet.gauges("device_busy_ratio", help, busy)?;
        let used = self.of_devices(|r| r.memory_used_bytes.map(|b| b as f64));
        sheet.gauges("device_memory_used_bytes", "Memory in use.", used)?;
        let size = self.of_devices(|r| r.memory_total_bytes.map(|b| b as f64));
        sheet.gauges("device_memory_size_bytes", "Memory in all.", size)?;
        let heat = self.of_devices(|r| r.temperature_c.map(f64::from));
        sheet.gauges("device_temperature_celsius", "Temperature.", heat)?;
        let power = self.of_devices(|r| r.power_w);
        sheet.gauges("device_power_watts", "Power drawn.", power)
    }

    fn devices_health(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let stuck = f64::from(u8::from(self.driver_stuck));
        let help = "1 while a call into the accelerators' driver does not return.";
        sheet.gauge("driver_stuck", help, stuck)?;
        let ecc = self.by("kind", |r| {
            [
                ("corrected", r.ecc_corrected),
                ("uncorrected", r.ecc_uncorrected),
            ]
        });
        let help = "Memory errors since the driver was loaded.";
        sheet.counters("device_memory_errors", help, ecc)?;
        let links = self.by("link", |r| {
            [
                ("nvlink", r.nvlink_replays),
                ("nvlink_recovery", r.nvlink_recoveries),
                ("pcie", r.pcie_replays),
            ]
        });
        let help = "Packets sent again, and links that had to recover.";
        sheet.counters("device_link_replays", help, links)?;
        let rows = self.of_devices(|r| r.remapped_rows.map(|n| n as f64));
        sheet.gauges("device_remapped_rows", "Memory rows replaced.", rows)?;
        let flag = |is: Option<bool>| is.map(|is| f64::from(u8::from(is)));
        let pending = self.of_devices(|r| flag(r.remap_pending));
        let help = "1 while a memory row waits for a reset to be replaced.";
        sheet.gauges("device_remap_pending", help, pending)?;
        let slow = self.of_devices(|r| flag(r.lost.is_none().then(|| r.slowdown.is_some())));
        let help = "1 while the hardware slows the clocks down.";
        sheet.gauges("device_throttled", help, slow)
    }

    fn host(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let Some(host) = self.host else {
            return Ok(());
        };
        let rows = [
            (
                "node_disk_free_bytes",
                "Bytes left on the disk of the state directory.",
                host.disk_free_bytes as f64,
            ),
            (
                "node_disk_size_bytes",
                "Bytes of the disk of the state directory.",
                host.disk_total_bytes as f64,
            ),
            (
                "node_memory_available_bytes",
                "Memory that can be had without swapping.",
                host.memory_available_bytes as f64,
            ),
            (
                "node_memory_size_bytes",
                "Memory of the machine.",
                host.memory_total_bytes as f64,
            ),
            (
                "node_load1",
                "Processes that run or want to, over the last minute.",
                host.load_1m,
            ),
        ];
        for (name, help, value) in rows {
            sheet.gauges(name, help, [(labels([("node", &*self.node)]), value)])?;
        }
        Ok(())
    }
}
