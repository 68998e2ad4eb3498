//! Carrying out what the machine wants.
use super::book::{Book, Entry};
use super::end;
use super::shim;
use crate::grouping::service_life;
use crate::launcher::{LaunchEvent, Launcher, Running, SERVICE_VARIABLE, owned_by};
use crate::probe;
use crate::tell::Tell;
use crate::worker::WorkerPlan;
use robust_proto::v1;
use robust_shared::core::{Exit, for_memory};
use robust_shared::ids::Incarnation;
use robust_shared::job::{Job, ServicePlace};
use robust_shared::service::{self, Effect, Event, Plan, ServiceId};
use robust_shared::time::Time;
use robust_tree::{keep_port, lend_ports};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// What is heard of services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceEvent {
    /// A shim is started, or is not.
    Started {
        /// Which life.
        life: Incarnation,
        /// The process, or why there is none.
        started: Result<Running, String>,
    },
    /// It is on record that the job is paused for services, or is no more.
    PauseNoted,
    /// A shim ended.
    Ended {
        /// Which life.
        life: Incarnation,
        /// Why, as a part of a sentence.
        how: String,
    },
    /// Nothing of it is left.
    Gone {
        /// Which life.
        life: Incarnation,
        /// Why it ended.
        how: String,
    },
    /// A probe ended.
    Probed {
        /// Which life.
        life: Incarnation,
        /// Whether it answered well and in time.
        ok: bool,
    },
}

/// The services of a job and their processes.
pub struct Services {
    pub(super) machine: service::Services,
    pub(super) launcher: Launcher,
    pub(super) book: Book,
    pub(super) plan: WorkerPlan,
    pub(super) grace: BTreeMap<String, Duration>,
    addresses: String,
    /// The slots of those that have some.
    places: Vec<ServicePlace>,
    /// Lives that are being started, and whether they are to be killed as soon as they are.
    starting: BTreeMap<Incarnation, bool>,
    /// A pause is on its way to the disk.
    noting: bool,
    events: Tell<ServiceEvent>,
}

impl Services {
    /// Takes over what an earlier daemon left: what is on record and lives goes on, what is not on
    /// record is killed.
    pub async fn open(
        job: &Job,
        plan: WorkerPlan,
        events: Tell<ServiceEvent>,
        now: Time,
    ) -> io::Result<Self> {
        let (exits, launches) = unbounded_channel();
        let launcher = Launcher::with_groups(exits, plan.grouping.groups().clone())?;
        tokio::spawn(forward(launches, events.clone()));
        let mut book = Book::open(plan.state.services_json())?;
        lend_all(&mut book, job, &plan)?;
        let addresses = addresses(&book, &plan);
        let owner = plan.state.root().as_os_str();
        let found = owned_by((SERVICE_VARIABLE, owner), shim::LIFE_VARIABLE);
        let highest = found.iter().map(|(life, _)| life.0).max().unwrap_or(0);
        book.page.last_life = book.page.last_life.max(highest);
        let grace = job.services.iter();
        let mut services = Self {
            machine: service::Services::new(Plan::of(job), book.page.last_life),
            launcher,
            book,
            plan,
            grace: grace.map(|(n, s)| (n.clone(), s.stop.grace())).collect(),
            addresses,
            // Of a validated job they are there.
            places: job.service_places().unwrap_or_default(),
            starting: BTreeMap::new(),
            noting: false,
            events,
        };
        services.take_over(now, found).await?;
        Ok(services)
    }

    async fn take_over(
        &mut self,
        now: Time,
        mut found: Vec<(Incarnation, Running)>,
    ) -> io::Result<()> {
        for entry in &mut self.book.page.services {
            let life = Incarnation(entry.life);
            let at = found.iter().position(|(of, _)| *of == life);
            let running = at.map(|at| found.swap_remove(at).1);
            let log = shim::log_path(&self.plan, &entry.id);
            let group = service_life(&entry.id, life);
            let adopts = |r: &Running| self.launcher.adopt(life, *r, Some(&log), Some(&group));
            let lives = running.filter(adopts);
            match lives {
                Some(running) => {
                    tracing::info!("adopted {} {life} (pid {})", entry.id, running.pid);
                    (entry.pid, entry.start_time) = (running.pid, running.start_time);
                    let (id, up) = (entry.id.clone(), entry.up);
                    self.machine.handle(now, Event::Adopted { id, life, up });
                }
                None => (entry.life, entry.pid, entry.up) = (0, 0, false),
            }
        }
        end::kill(found).await?;
        self.book.save();
        Ok(())
    }

    /// Who starts and ends their processes.
    pub fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// The addresses of all services, as role processes are told them; empty without any.
    pub fn addresses(&self) -> &str {
        &self.addresses
    }

    /// Something that happened to the services or to the job.
    pub fn handle(&mut self, now: Time, event: Event) {
        self.machine.handle(now, event);
    }

    /// Something was heard of them.
    pub fn heard(&mut self, now: Time, event: ServiceEvent) {
        match event {
            ServiceEvent::Started { life, started } => self.started(now, life, started),
            ServiceEvent::PauseNoted => self.noting = false,
            ServiceEvent::Ended { life, how } => self.clear(life, how),
            ServiceEvent::Gone { life, how } => {
                if let Some(entry) = self.entry(life) {
                    (entry.life, entry.pid, entry.up) = (0, 0, false);
                }
                self.machine.handle(now, Event::Exited { life, how });
            }
            ServiceEvent::Probed { life, ok } => {
                self.machine.handle(now, Event::Probed { life, ok })
            }
        }
    }

    /// What the driver has to do next, after everything that can be done here.
    pub fn poll(&mut self, now: Time) -> Option<Effect> {
        if self.machine.next_timeout().is_some_and(|due| due <= now) {
            self.machine.handle(now, Event::Timeout);
        }
        while let Some(effect) = self.machine.poll_effect() {
            match effect {
                Effect::Start { id, life } => self.start(&id, life),
                Effect::Kill { life, reason } => {
                    tracing::info!("killing the service's life {}: {reason}", life.0);
                    self.launcher.kill(life);
                    if let Some(unwanted) = self.starting.get_mut(&life) {
                        *unwanted = true;
                    }
                }
                Effect::Probe {
                    id,
                    life,
                    path,
                    timeout,
                } => self.probe(&id, life, path, timeout),
                other => return Some(other),
            }
        }
        self.note_up();
        self.book.save();
        None
    }

    /// When [`Self::poll`] is wanted at the latest.
    pub fn next_timeout(&self) -> Option<Time> {
        self.machine.next_timeout()
    }

    /// Whether the job has to wait.
    pub fn holds(&self) -> bool {
        self.machine.holds()
    }

    /// Whether the job is paused because a service was missing.
    pub fn has_paused(&self) -> bool {
        self.book.page.paused
    }

    /// Whether it is being written down that it is, or is no more.
    pub fn is_noting_pause(&self) -> bool {
        self.noting
    }

    /// Remembers that it is, or is no more. [`ServiceEvent::PauseNoted`] says when that is on disk: the
    /// pause itself comes after it.
    pub fn note_pause(&mut self, paused: bool) {
        self.book.page.paused = paused;
        self.noting = true;
        let events = self.events.clone();
        self.book.save_then(move || {
            // When the driver is gone nobody wants to know.
            let _ = events.tell(ServiceEvent::PauseNoted);
        });
    }

    /// The pause is not one for services after all.
    pub fn disown_pause(&mut self) {
        self.book.page.paused = false;
        self.book.save();
    }

    /// As operators see them.
    pub fn status(&self) -> Vec<v1::ServiceStatus> {
        let each = self.machine.view().into_iter();
        each.map(|view| {
            let entry = self.book.page.services.iter().find(|e| e.id == view.id);
            let port = entry.and_then(|e| e.ports.first());
            let addr = port.map(|port| SocketAddr::new(self.plan.bind, *port).to_string());
            v1::ServiceStatus {
                name: view.id.name,
                index: view.id.index,
                state: view.state.word().to_owned(),
                incarnation: view.life.0,
                pid: entry.map_or(0, |e| e.pid),
                addr: addr.unwrap_or_default(),
                restarts: view.restarts,
                reason: view.reason,
                needed: view.needed.name().to_owned(),
                since_ms: view.since.millis(),
            }
        })
        .collect()
    }

    fn entry(&mut self, life: Incarnation) -> Option<&mut Entry> {
        let mut all = self.book.page.services.iter_mut();
        all.find(|e| e.life == life.0 && life.0 != 0)
    }

    fn start(&mut self, id: &ServiceId, life: Incarnation) {
        self.book.page.last_life = self.book.page.last_life.max(life.0);
        let Some(entry) = self.book.of(id) else {
            return;
        };
        (entry.life, entry.pid, entry.up) = (life.0, 0, false);
        let ports = entry.ports.clone();
        let mut places = self.places.iter();
        let place = places.find(|p| p.service == id.name && p.index == id.index);
        let spec = shim::spec(&self.plan, id, life, &ports, &self.addresses, place);
        self.starting.insert(life, false);
        let (launcher, events) = (self.launcher.clone(), self.events.clone());
        // After its life is on disk: one that nobody remembers would be killed by the next daemon.
        self.book.save_then(move || {
            let started = launcher.spawn(spec).map_err(|e| e.to_string());
            // When the driver is gone, the next one finds it by its life.
            let _ = events.tell(ServiceEvent::Started { life, started });
        });
    }

    fn started(&mut self, now: Time, life: Incarnation, started: Result<Running, String>) {
        let unwanted = self.starting.remove(&life) == Some(true);
        match started {
            Ok(running) => {
                if let Some(entry) = self.entry(life) {
                    (entry.pid, entry.start_time) = (running.pid, running.start_time);
                }
                if unwanted {
                    self.launcher.kill(life);
                }
            }
            Err(reason) => {
                if let Some(entry) = self.entry(life) {
                    entry.life = 0;
                }
                self.machine.handle(now, Event::NotStarted { life, reason });
            }
        }
    }

    fn probe(&self, id: &ServiceId, life: Incarnation, path: Option<String>, timeout: Duration) {
        let entry = self.book.page.services.iter().find(|e| e.id == *id);
        let port = entry.and_then(|e| e.ports.first()).copied();
        let addr = SocketAddr::new(self.plan.bind, port.unwrap_or_default()).to_string();
        let events = self.events.clone();
        tokio::spawn(async move {
            let ok = match path {
                Some(path) => probe::answers(&addr, &path, timeout).await,
                None => probe::accepts(&addr, timeout).await,
            };
            // When the driver is gone nobody wants to know.
            let _ = events.tell(ServiceEvent::Probed { life, ok });
        });
    }

    /// Kills what left the shim's process group, and says when that is done.
    fn clear(&mut self, life: Incarnation, how: String) {
        let home = self.entry(life).map(|entry| entry.id.clone());
        let home = home.map(|id| shim::home(&self.plan, &id));
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || {
            if let Some(home) = home {
                end::clear(&home);
            }
            let _ = events.tell(ServiceEvent::Gone { life, how });
        });
    }

    fn note_up(&mut self) {
        for view in self.machine.view() {
            let up = view.state.is_up();
            if let Some(entry) = self.book.of(&view.id).filter(|e| e.life == view.life.0) {
                entry.up = up;
            }
        }
    }
}

async fn forward(mut launches: UnboundedReceiver<LaunchEvent>, events: Tell<ServiceEvent>) {
    while let Some(LaunchEvent::Exited {
        incarnation: life,
        exit,
        tail_of_log,
        ..
    }) = launches.recv().await
    {
        let how = reason(&exit, &tail_of_log);
        if events.tell(ServiceEvent::Ended { life, how }).is_err() {
            return;
        }
    }
}

/// What the kernel says of its memory, or its shim said last, else how the shim itself ended.
fn reason(exit: &Exit, tail: &str) -> String {
    if let Some(said) = for_memory(tail) {
        return said.to_owned();
    }
    let last = tail.lines().last().unwrap_or_default();
    match (last.strip_prefix("error: "), exit) {
        (Some(said), _) => said.to_owned(),
        (None, Exit::Code(code)) => format!("its shim ended with code {code}"),
        (None, Exit::Signal(signal)) => format!("its shim was ended by signal {signal}"),
        (None, Exit::Gone) => "its shim is gone".to_owned(),
    }
}

/// Every instance has an entry, with its ports.
fn lend_all(book: &mut Book, job: &Job, plan: &WorkerPlan) -> io::Result<()> {
    let known = std::mem::take(&mut book.page.services);
    for port in known.iter().flat_map(|entry| &entry.ports) {
        keep_port(*port)?;
    }
    for (name, service) in &job.services {
        for index in 0..service.replicas {
            let name = name.clone();
            let id = ServiceId { name, index };
            let fits = |e: &&Entry| e.id == id && e.ports.len() == service.ports as usize;
            let entry = match known.iter().find(fits) {
                Some(entry) => entry.clone(),
                None => Entry {
                    id,
                    ports: lend_ports(service.ports, plan.bind)?,
                    life: 0,
                    pid: 0,
                    start_time: 0,
                    up: false,
                },
            };
            book.page.services.push(entry);
        }
    }
    Ok(())
}

fn addresses(book: &Book, plan: &WorkerPlan) -> String {
    let mut all: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for entry in &book.page.services {
        if let Some(port) = entry.ports.first() {
            let address = SocketAddr::new(plan.bind, *port).to_string();
            all.entry(&entry.id.name).or_default().push(address);
        }
    }
    let joined = all.into_iter().map(|(name, of)| (name, of.join(",")));
    let joined: BTreeMap<&str, String> = joined.collect();
    match joined.is_empty() {
        true => String::new(),
        false => serde_json::to_string(&joined).unwrap_or_default(),
    }
}
