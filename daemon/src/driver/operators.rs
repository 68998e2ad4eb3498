//! What operators want.
use super::Driver;
use super::event::OperatorEvent;
use robust_shared::core::{Input, Request};

impl Driver {
    pub(super) fn on_operator(&mut self, event: OperatorEvent) {
        match event {
            OperatorEvent::Inject {
                fault,
                role,
                index,
                incarnation,
                at,
                answer,
            } => {
                self.tasks += 1;
                self.injections.insert(self.tasks, answer);
                let request = Request::Inject {
                    fault,
                    role,
                    index,
                    incarnation,
                    at,
                };
                self.inputs.push_back(Input::Operator(self.tasks, request));
            }
            OperatorEvent::Ask { request, answer } => {
                self.tasks += 1;
                self.requests.insert(self.tasks, answer);
                self.inputs.push_back(Input::Operator(self.tasks, request));
            }
            OperatorEvent::Look { id, answer } => {
                let open = self.core.batch_prompts(id.batch);
                let open = open.map(|_| self.core.trajectory(id).cloned());
                // Whoever asked may have left.
                let _ = answer.send((self.core.state().committed(), open));
            }
            OperatorEvent::Copy { answer } => {
                let copy = Box::new((self.core.clone(), self.parts.clock.now()));
                // Whoever asked may have left.
                let _ = answer.send(copy);
            }
            OperatorEvent::ReadLog {
                id,
                offset,
                bytes,
                answer,
            } => self.on_read_log(id, (offset, bytes), answer),
            OperatorEvent::Inspect {
                incarnation,
                depth,
                answer,
            } => self.on_inspect(incarnation, depth, answer),
            OperatorEvent::Probe {
                incarnation,
                serves,
                answer,
            } => self.on_probe(incarnation, serves, answer),
            OperatorEvent::Change {
                role,
                change,
                answer,
            } => self.on_change(role, change, answer),
            OperatorEvent::Stop => {
                self.outbox.hurry();
                self.parts.logging.hurry();
                self.inputs.push_back(Input::Stop);
            }
        }
    }
}
