//! The instances: whether they are at work, what they pull, what they use.
use super::{Labels, Sheet, Snapshot};
use robust_proto::v1;
use robust_shared::ids::Role;
use robust_shared::wire::InstanceState;
use std::fmt;

/// Whether it generates.
fn engine(role: &v1::RoleStatus) -> bool {
    !matches!(role.role(), Some(Role::Trainer | Role::Agent))
}

impl Snapshot {
    pub(super) fn instances(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let up = self.each(|r| {
            Some(f64::from(u8::from(
                r.state() == Some(InstanceState::Running),
            )))
        });
        sheet.gauges("instance_up", "1 where the instance is at work.", up)?;
        let age = self.each(|r| Some(r.phase_ms as f64 / 1e3));
        let help = "How long the instance is in its phase.";
        sheet.gauges("instance_phase_age_seconds", help, age)?;
        let admitted = self.each(|r| engine(r).then(|| f64::from(u8::from(r.admitted))));
        let help = "1 where requests are routed to the engine.";
        sheet.gauges("instance_admitted", help, admitted)?;
        let out = self.each(|r| engine(r).then(|| f64::from(u8::from(r.quarantined))));
        let help = "1 where an operator took the engine out of traffic.";
        sheet.gauges("instance_quarantined", help, out)?;
        let restarts = self.each(|r| Some(u64::from(r.restarts)));
        let help = "Restarts of the instance since the job began.";
        sheet.counters("instance_restarts", help, restarts)?;
        let tokens = self.each(|r| engine(r).then_some(r.tokens_total));
        sheet.counters("tokens", "Tokens generated, by all lives.", tokens)?;
        let failures = self.each(|r| (r.role() == Some(Role::Agent)).then_some(r.tool_failures));
        let help = "Tool calls that failed by no doing of the model's, by all lives: each was made again, \
                    or its trajectory given back. Normal: 0.";
        sheet.counters("tool_failures", help, failures)?;
        let refused = self.each(|r| (r.role() != Some(Role::Agent)).then_some(r.callers_refused));
        let help = "Callers of the instance's weights that were turned away, by all lives: they are no \
                    members of the job, or keep no rule. Normal: 0.";
        sheet.counters("callers_refused", help, refused)?;
        let requests =
            self.each(|r| (r.role() != Some(Role::Trainer)).then_some(f64::from(r.running)));
        let help = "Requests a rollout runs, and trajectories an agent worker holds.";
        sheet.gauges("instance_requests", help, requests)?;
        let served =
            self.each(|r| (r.role() != Some(Role::Agent)).then_some(r.weight_version as f64));
        let help = "The version of the weights the instance serves.";
        sheet.gauges("instance_weight_version", help, served)
    }

    /// The running or last pull of each engine that pulled at all.
    pub(super) fn pulls(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
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
                "pull_patched_bytes",
                "Bytes of it that were made of the version before by what had changed.",
                pull(|r| r.pull_patched as f64),
            ),
            (
                "pull_changed_bytes",
                "Bytes of it that differ from the version before, where that is known.",
                pull(|r| (r.pull_changed_words * 2) as f64),
            ),
            (
                "pull_wrong_patches",
                "Chunks of it that what had changed did not make, and that came whole. Normal: 0.",
                pull(|r| r.pull_wrong_patches as f64),
            ),
            (
                "pull_rate_bytes",
                "Bytes a second that came, over the last second of the pull.",
                pull(|r| r.pull_bytes_per_s),
            ),
        ];
        for (name, help, rows) in rows {
            sheet.gauges(name, help, rows)?;
        }
        let sources =
            self.each(|r| Some(r.pull_source.clone()).filter(|source| !source.is_empty()));
        let named = |(mut labels, source): (Labels, String)| {
            labels.push(("source", source));
            (labels, 1.0)
        };
        let help = "1 for the instance that sends the running pull, or sent the last one.";
        sheet.gauges("pull_source", help, sources.into_iter().map(named))
    }

    pub(super) fn instances_use(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
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
}
