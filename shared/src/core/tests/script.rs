//! A core driven by hand: processes start, link, verify and train as soon as they are told, and what
//! matters to a test happens when the test says so.
use super::*;
use std::collections::BTreeMap;

/// See the module's doc.
pub struct Script {
    pub core: Core,
    pub now: Time,
    /// What was said and is not answered by itself.
    pub said: Vec<Output>,
    /// Engines serve nothing before they are told to.
    pub mute: bool,
    /// Ranks restore nothing before they are told to.
    pub idle: bool,
    /// Versions that the gang was asked to publish.
    pub published: Vec<WeightVersion>,
    lives: BTreeMap<InstanceId, Incarnation>,
    routes: BTreeMap<u64, Incarnation>,
    tickets: BTreeMap<TrajectoryId, u64>,
    next: u64,
}

pub const AGENT: InstanceId = InstanceId {
    role: Role::Agent,
    index: 0,
};

pub const fn t(batch: u64, group: u32, member: u32) -> TrajectoryId {
    TrajectoryId {
        batch,
        group,
        member,
    }
}

impl Script {
    /// A job that starts, its first batch handed out.
    pub fn new(config: CoreConfig) -> Self {
        let mut script = Self::silent(config);
        script.mute = false;
        script.feed(Input::Start);
        script
    }

    /// One that is not started, whose engines link and verify nothing.
    pub fn silent(config: CoreConfig) -> Self {
        Self {
            core: Core::new(config),
            now: Time(1_000_000_000),
            said: Vec::new(),
            mute: true,
            idle: false,
            published: Vec::new(),
            lives: BTreeMap::new(),
            routes: BTreeMap::new(),
            tickets: BTreeMap::new(),
            next: 0,
        }
    }

    /// The controller starts anew from what it has on record; all processes live on and link again.
    pub fn restart_daemon(&mut self, late: &[Input]) {
        let (config, state) = (self.core.config().clone(), self.core.state().clone());
        let state = serde_json::to_string(&state).unwrap();
        self.core = Core::restore(config, serde_json::from_str(&state).unwrap());
        self.routes.clear();
        self.tickets.clear();
        for input in late {
            self.feed(input.clone());
        }
        self.feed(Input::Start);
        for incarnation in self.lives.values().copied().collect::<Vec<_>>() {
            let leases = self.core.leases().into_iter();
            let leases = leases.filter(|(_, a)| *a == incarnation).map(|(id, _)| id);
            let hello = Hello {
                version: self.core.view(self.now).version,
                step: Some(self.core.view(self.now).step),
                leases: leases.collect(),
                ..Hello::default()
            };
            self.feed(Input::Role(incarnation, RoleEvent::Attached { hello }));
        }
    }

    pub fn feed(&mut self, input: Input) {
        self.now = self.now + ms(1);
        self.core.handle(self.now, input);
        while let Some(output) = self.core.poll_output() {
            for answer in self.answer(output) {
                self.feed(answer);
            }
        }
    }

    fn answer(&mut self, output: Output) -> Vec<Input> {
        match output {
            Output::Spawn {
                id, incarnation, ..
            } => {
                self.lives.insert(id, incarnation);
                let hello = Hello::default();
                let pid = 7;
                vec![
                    Input::Role(incarnation, RoleEvent::Spawned { pid }),
                    Input::Role(incarnation, RoleEvent::Attached { hello }),
                ]
            }
            Output::Restore {
                generation, step, ..
            } if !self.idle => vec![Input::Gang(generation, GangEvent::Restored { step })],
            Output::Publish {
                generation,
                version,
                ..
            } => {
                self.published.push(version);
                vec![Input::Gang(
                    generation,
                    GangEvent::Published {
                        version,
                        bytes: 1,
                        digest: String::new(),
                    },
                )]
            }
            Output::AssignPull {
                puller,
                version,
                order,
                ..
            } if !self.mute => vec![Input::Role(
                puller,
                RoleEvent::Pulled {
                    version,
                    order,
                    result: Ok(()),
                },
            )],
            Output::Route { ticket, rollout } => {
                self.routes.insert(ticket, rollout);
                Vec::new()
            }
            other => {
                self.said.push(other);
                Vec::new()
            }
        }
    }

    pub fn life(&self, id: InstanceId) -> Incarnation {
        self.lives[&id]
    }

    /// The agent worker asks for an engine; which one it got.
    pub fn ask(&mut self, id: TrajectoryId) -> Option<Incarnation> {
        self.next += 1;
        let (ticket, incarnation) = (self.next, self.life(AGENT));
        self.tickets.insert(id, ticket);
        self.feed(Input::Role(
            incarnation,
            RoleEvent::RouteRequested {
                ticket,
                trajectory: id,
            },
        ));
        self.routes.get(&ticket).copied()
    }

    /// All of these are in flight on the engine.
    pub fn flight(&mut self, engine: InstanceId, ids: &[TrajectoryId]) {
        for id in ids {
            assert_eq!(self.ask(*id), Some(self.life(engine)), "{id}");
        }
    }

    /// The turn is over, or broken off.
    pub fn release(&mut self, id: TrajectoryId, broken: bool) {
        let ticket = self.tickets[&id];
        self.feed(Input::RouteReleased { ticket, broken });
    }

    pub fn exits(&mut self, id: InstanceId, exit: Exit, detail: &str) {
        let incarnation = self.life(id);
        self.feed(Input::Role(
            incarnation,
            RoleEvent::Exited {
                at: Some(self.now),
                exit,
                detail: detail.to_owned(),
            },
        ));
    }

    pub fn finish(&mut self, id: TrajectoryId) {
        let incarnation = self.life(AGENT);
        self.feed(finished(incarnation, id));
    }

    /// The records said so far.
    pub fn records(&self) -> Vec<&Record> {
        let records = self.said.iter().filter_map(|o| match o {
            Output::Record(record) => Some(record),
            _ => None,
        });
        records.collect()
    }

    /// The texts of events of a kind.
    pub fn events(&self, kind: &str) -> Vec<&str> {
        let events = self.said.iter().filter_map(|o| match o {
            Output::Event(e) if e.kind == kind => Some(e.text.as_str()),
            _ => None,
        });
        events.collect()
    }

    pub fn incidents(&self) -> Vec<Incident> {
        self.core.view(self.now).incidents
    }
}

pub fn finished(incarnation: Incarnation, trajectory: TrajectoryId) -> Input {
    Input::Role(
        incarnation,
        RoleEvent::TrajectoryFinished {
            trajectory,
            reward: 1.0,
            oldest_version: WeightVersion(0),
            lease: 0,
        },
    )
}
