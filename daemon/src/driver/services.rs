//! The services of the job, as far as they concern the core: whether the job may begin, has to wait,
//! or fails.
use super::{Alarm, Driver};
use robust_shared::core::{Input, Request, Severity};
use robust_shared::service::{Effect, Event};

impl Driver {
    /// Does what the services want now.
    pub(super) fn serve_services(&mut self) {
        loop {
            let now = self.parts.clock.now();
            while let Some(effect) = self.services.poll(now) {
                self.serve_service(effect);
            }
            // Roles that live are not left alone; the job is paused instead.
            if self.begun || (self.services.holds() && self.processes.is_empty()) {
                break;
            }
            self.begun = true;
            self.inputs.push_back(Input::Start);
            self.services.handle(now, Event::RolesStarted);
        }
        if self.begun {
            self.pause_for_services();
        }
    }

    fn serve_service(&mut self, effect: Effect) {
        let now = self.parts.clock.now();
        self.dirty = true;
        let feeds = &self.parts.feeds;
        match effect {
            Effect::Say {
                severity,
                kind,
                text,
            } => feeds.note(now, severity, kind, text),
            Effect::Fail { reason } => self.inputs.push_back(Input::ServiceLost { reason }),
            Effect::Hold { reason } if self.begun => {
                feeds.raise(
                    now,
                    Alarm::ServiceMissing,
                    Severity::Warn,
                    "service",
                    reason,
                );
            }
            Effect::Hold { reason } => feeds.note(now, Severity::Info, "service", reason),
            Effect::Release => {
                let text = "every service that the job waits for is up".to_owned();
                feeds.lower(now, Alarm::ServiceMissing, "service", text);
            }
            // Carried out by then.
            Effect::Start { .. } | Effect::Kill { .. } | Effect::Probe { .. } => {}
        }
    }

    /// Pauses the job while a service that it waits for is missing, also when an operator lets it go
    /// on; a pause of an operator's own stays.
    fn pause_for_services(&mut self) {
        let (holds, paused) = (self.services.holds(), self.core.pause().is_some());
        // Nobody waits for the answer.
        let ticket = 0;
        if holds && !paused && self.core.is_running() {
            self.services.set_paused(true);
            self.inputs
                .push_back(Input::Operator(ticket, Request::Pause));
        } else if !holds && self.services.has_paused() {
            self.services.set_paused(false);
            if paused {
                self.inputs
                    .push_back(Input::Operator(ticket, Request::Resume));
            }
        }
    }
}
