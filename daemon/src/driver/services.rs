//! The services of the job, as far as they concern the core: whether the job may begin, has to wait,
//! or fails.
use super::{Alarm, Driver};
use crate::services::ServiceEvent;
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
    /// on; a pause of an operator's own stays. Each is asked of the core when it is on record whose pause
    /// it is.
    fn pause_for_services(&mut self) {
        if self.services.is_noting_pause() {
            return;
        }
        let (holds, paused) = (self.services.holds(), self.core.pause().is_some());
        if holds && !paused && self.core.is_running() {
            self.services.note_pause(true);
        } else if !holds && self.services.has_paused() {
            self.services.note_pause(false);
        }
    }

    pub(super) fn on_service(&mut self, event: ServiceEvent) {
        let is_noted = event == ServiceEvent::PauseNoted;
        self.services.heard(self.parts.clock.now(), event);
        self.dirty = true;
        if is_noted {
            self.on_pause_noted();
        }
    }

    fn on_pause_noted(&mut self) {
        let request = match (self.services.has_paused(), self.core.pause().is_some()) {
            (true, false) => Request::Pause,
            (false, true) => Request::Resume,
            // An operator was faster: the pause is theirs.
            (true, true) => return self.services.disown_pause(),
            (false, false) => return,
        };
        // Nobody waits for the answer.
        let ticket = 0;
        self.inputs.push_back(Input::Operator(ticket, request));
    }
}
