//! What devices show.
use super::Core;
use super::output::Severity;
use crate::hardware::{Advice, Finding};

impl Core {
    /// Makes it known.
    pub(super) fn on_hardware(&mut self, node: &str, device: u32, finding: &Finding) {
        let advice = finding.advice();
        let severity = match advice {
            Advice::Ignore => return,
            Advice::Note => Severity::Info,
            Advice::Drain => Severity::Warn,
            Advice::Fault => Severity::Fault,
        };
        let text = format!(
            "{node} device {device}: {} ({}), advice: {advice}",
            finding.kind, finding.text
        );
        self.event(severity, "hardware", None, text);
    }
}
