//! From events to inputs. Nothing is decided here; what the core need not know (replies, samples of
//! links, what a process serves) is noted.
use super::Driver;
use super::event::{Event, ProcessEvent, StoreEvent, TimerEvent};
use crate::control::{GangWorkEvent, StepOutcome};
use crate::launcher::{Evidence, LaunchEvent};
use crate::nodes::NodeLinkEvent;
use robust_shared::core::{Exit, Input, RoleEvent};
use robust_shared::ids::Incarnation;
use robust_shared::time::Time;

impl Driver {
    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::Launch(event) => self.on_launch(event),
            Event::Link(event) => self.on_link(event),
            Event::Route(event) => self.on_route(event),
            Event::Node(event) => self.on_node(event),
            Event::Operator(event) => self.on_operator(event),
            Event::Process(event) => self.on_process(event),
            Event::GangWork(event) => self.on_gang_work(event),
            Event::Service(event) => self.on_service(event),
            Event::Store(event) => self.on_store(event),
            Event::Checkpoint(event) => self.on_checkpoint(&event),
            Event::Samples(samples) => self.on_samples(*samples),
            Event::Timer(TimerEvent::Timeout) => self.inputs.push_back(Input::Timeout),
            Event::Timer(TimerEvent::StatusDue) => {
                self.dirty = true;
                self.turn_page(false);
                self.press_checkpoint();
                self.press_copies();
            }
        }
    }

    fn on_launch(&mut self, event: LaunchEvent) {
        let LaunchEvent::Exited {
            incarnation,
            at,
            exit,
            tail_of_log,
        } = event;
        let at = self.parts.clock.at(at);
        self.on_exited(incarnation, at, exit, tail_of_log);
    }

    pub(super) fn on_exited(
        &mut self,
        incarnation: Incarnation,
        at: Time,
        exit: Exit,
        detail: String,
    ) {
        self.forget(incarnation);
        self.inputs.push_back(Input::Role(
            incarnation,
            RoleEvent::Exited {
                at: Some(at),
                exit,
                detail,
            },
        ));
    }

    fn on_node(&mut self, event: NodeLinkEvent) {
        match event {
            NodeLinkEvent::Joined { joined, admitted } => self.on_node_joined(*joined, admitted),
            NodeLinkEvent::Said { link, body } => self.on_node_said(link, *body),
            NodeLinkEvent::Gone { link } => self.on_node_gone(link),
        }
    }

    fn on_process(&mut self, event: ProcessEvent) {
        let (incarnation, event) = match event {
            ProcessEvent::Started { life, started } => return self.on_started(&life, started),
            ProcessEvent::Probed { incarnation, ok } => (incarnation, RoleEvent::Probed { ok }),
            ProcessEvent::Switched {
                incarnation,
                paused,
                ok,
            } => (incarnation, RoleEvent::Switched { paused, ok }),
            ProcessEvent::Evidence { incarnation, found } => {
                let Evidence { text, seen } = found;
                (incarnation, RoleEvent::Evidence { text, seen })
            }
            ProcessEvent::Overstayed { incarnation } => return self.kill(incarnation),
        };
        self.inputs.push_back(Input::Role(incarnation, event));
    }

    fn on_store(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Condition(condition) => self.show_condition(&condition),
            StoreEvent::Loaded(loaded) => self.on_loaded(loaded),
            StoreEvent::Revised { revision, written } => self.on_revised(*revision, written),
        }
    }

    fn on_gang_work(&mut self, event: GangWorkEvent) {
        match event {
            GangWorkEvent::Ended { task, outcome } => self.on_ended(task, *outcome),
            GangWorkEvent::Replayed { task, replayed } => self.on_replayed(task, *replayed),
            GangWorkEvent::Brought { key, shard } => self.on_brought(key, shard),
            GangWorkEvent::NotBrought { key, reason } => self.on_not_brought(key, &reason),
        }
    }

    fn on_ended(&mut self, task: u64, outcome: StepOutcome) {
        if self
            .gang
            .as_ref()
            .is_none_or(|running| running.number != task)
        {
            return;
        }
        let step = match &outcome {
            StepOutcome::Done { step, .. } => Some(*step),
            _ => None,
        };
        // While it is known which ranks did it: where they are, their shards are.
        let input = self.note_outcome(outcome);
        let task = self.gang.take();
        match (step, task) {
            (Some(step), Some(task)) => self.on_done(task, step, input),
            _ => self.inputs.push_back(input),
        }
    }
}
