//! What telemetry and links tell of processes and devices.
use super::Driver;
use crate::telemetry::{ProcessSample, Samples, Usage};
use robust_shared::core::{Input, NodeEvent, RoleEvent, Sample};
use robust_shared::ids::{Incarnation, NodeId};

impl Driver {
    pub(super) fn on_usage(&mut self, incarnation: Incarnation, usage: &Usage) {
        let link = self
            .link_samples
            .get(&incarnation)
            .copied()
            .unwrap_or_default();
        let sample = Sample {
            // The system tells of the role's own process; beside a program of the user's that is the shim,
            // which idles while the program computes.
            busy: usage.busy.max(link.busy),
            tokens_total: link.tokens_total,
            running: link.running,
            rss_bytes: usage.rss_bytes,
            disk_read_bytes: usage.disk_read_bytes,
            disk_write_bytes: usage.disk_write_bytes,
            accelerator: usage.accelerator,
            tool_failures: link.tool_failures,
            callers_refused: link.callers_refused,
        };
        self.inputs
            .push_back(Input::Role(incarnation, RoleEvent::Sampled { sample }));
    }

    pub(super) fn on_samples(&mut self, samples: Samples) {
        self.parts.feeds.metrics().samples(&samples);
        self.gauges.note_host(samples.host);
        for sample in &samples.processes {
            let ProcessSample {
                incarnation,
                usage,
                device,
            } = sample;
            self.gauges.note(*incarnation, *device);
            self.on_usage(*incarnation, usage);
        }
        for found in samples.devices.findings {
            self.inputs.push_back(Input::Node(
                NodeId::LEADER,
                NodeEvent::Hardware {
                    device: found.device,
                    users: found.users,
                    finding: found.finding,
                },
            ));
        }
    }
}
