//! The leader's end of the pipes: requests by key, calls by number, and the news that a child died.

use crate::protocol::{Command, Generate, Operation, Report, Step};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

/// The process that makes tokens, or one between, is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead;

/// The leader's link with the process that makes tokens.
pub struct Link {
    commands: Sender<Command>,
    table: Mutex<Table>,
    tokens: AtomicU64,
    dead: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Table {
    next: u64,
    requests: HashMap<u64, (String, UnboundedSender<Step>)>,
    calls: HashMap<u64, oneshot::Sender<Result<Value, String>>>,
}

/// A request under way; it is aborted when this is dropped before its end.
pub struct Request {
    key: u64,
    link: Arc<Link>,
    steps: UnboundedReceiver<Step>,
}

impl Link {
    /// Takes the pipes up, a thread for each direction.
    pub fn start(mut to: PipeWriter, from: PipeReader) -> Arc<Self> {
        let (commands, outgoing) = std::sync::mpsc::channel::<Command>();
        let link = Arc::new(Self {
            commands,
            table: Mutex::default(),
            tokens: AtomicU64::new(0),
            dead: watch::channel(None).0,
        });
        std::thread::spawn(move || {
            for command in outgoing {
                let line = serde_json::to_string(&command).unwrap_or_default();
                if writeln!(to, "{line}").is_err() {
                    return;
                }
            }
        });
        // The end of this pipe is the end of a child, which its parent tells by name.
        let reader = link.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(report) => reader.hear(report),
                    Err(error) => eprintln!("fake-engine: a report is unreadable: {error}"),
                }
            }
        });
        link
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, report: Report) {
        match report {
            Report::Step(step) => {
                self.tokens
                    .fetch_add(u64::from(step.token.is_some()), Ordering::Relaxed);
                let mut table = self.table();
                let (key, ended) = (step.key, step.end.is_some());
                if let Some((_, request)) = table.requests.get(&key) {
                    let _ = request.send(step);
                }
                if ended {
                    table.requests.remove(&key);
                }
            }
            Report::Done { call, result } => {
                if let Some(caller) = self.table().calls.remove(&call) {
                    let _ = caller.send(result);
                }
            }
            Report::Dead { name } => self.died(&name),
        }
    }

    /// A child is dead: the first one is who is told of.
    pub fn died(&self, name: &str) {
        self.dead.send_if_modified(|dead| {
            let first = dead.is_none();
            dead.get_or_insert_with(|| name.to_owned());
            first
        });
    }

    /// Waits until a child is dead, and says which.
    pub async fn death(&self) -> String {
        let mut dead = self.dead.subscribe();
        loop {
            if let Some(name) = dead.borrow_and_update().clone() {
                return name;
            }
            // The sender lives as long as this does.
            let _ = dead.changed().await;
        }
    }

    /// No request and no call is answered any more.
    pub fn fail(&self) {
        let mut table = self.table();
        table.requests.clear();
        table.calls.clear();
    }

    /// Begins a request; `rid` is what clients call it.
    pub fn generate(self: &Arc<Self>, rid: &str, mut asked: Generate) -> Request {
        let (send, steps) = unbounded_channel();
        let mut table = self.table();
        table.next += 1;
        let key = table.next;
        table.requests.insert(key, (rid.to_owned(), send));
        asked.key = key;
        let _ = self.commands.send(Command::Generate(asked));
        drop(table);
        Request {
            key,
            link: self.clone(),
            steps,
        }
    }

    /// Calls the process that makes tokens and waits, also for ever.
    pub async fn call(&self, operation: Operation) -> Result<Result<Value, String>, Dead> {
        let (send, answer) = oneshot::channel();
        {
            let mut table = self.table();
            table.next += 1;
            let call = table.next;
            table.calls.insert(call, send);
            let _ = self.commands.send(Command::Call { call, operation });
        }
        answer.await.map_err(|_| Dead)
    }

    /// Ends the requests that `chosen` names; says how many.
    pub fn abort(&self, chosen: impl Fn(&str) -> bool) -> usize {
        let keys: Vec<_> = self.keys(chosen);
        let count = keys.len();
        let _ = self.commands.send(Command::Abort { keys: Some(keys) });
        count
    }

    fn keys(&self, chosen: impl Fn(&str) -> bool) -> Vec<u64> {
        let table = self.table();
        let found = table.requests.iter().filter(|(_, (rid, _))| chosen(rid));
        found.map(|(key, _)| *key).collect()
    }

    /// Whether a request of that name is under way.
    pub fn knows(&self, rid: &str) -> bool {
        !self.keys(|other| other == rid).is_empty()
    }

    /// Requests under way.
    pub fn requests(&self) -> usize {
        self.table().requests.len()
    }

    /// Tokens made in this life.
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }
}

impl Request {
    /// What the request got next; nothing more comes when the process that makes tokens is dead.
    pub async fn step(&mut self) -> Result<Step, Dead> {
        self.steps.recv().await.ok_or(Dead)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.link.table().requests.remove(&self.key).is_some() {
            let _ = self.link.commands.send(Command::Abort {
                keys: Some(vec![self.key]),
            });
        }
    }
}
