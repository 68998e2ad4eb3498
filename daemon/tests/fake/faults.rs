//! Faults that a fake does to itself, as the real roles do. Fakes have no memory or network that others
//! could read: whose weights are corrupt, and who is silent towards whom, lies in files beside the
//! snapshots, where the pullers of the same node look.
use super::{Fake, Up, say};
use robust_proto::v1::{self, FaultStruck, RoleFault, role_message::Body};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// So that what was said last is on its way before the process ends.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// A cut has no length of its own, and a stall has one that shows.
const CUT: Duration = Duration::from_secs(2);

/// Until when this process's tool does not answer.
static HANG: Mutex<Option<Instant>> = Mutex::new(None);

/// What a fake was asked for.
#[derive(Default)]
pub struct Faults {
    known: BTreeSet<u64>,
    armed: Vec<RoleFault>,
}

/// Waits for as long as the tool does not answer.
pub async fn tool_answers() {
    let until = *HANG.lock().unwrap();
    if let Some(until) = until {
        tokio::time::sleep_until(until.into()).await;
    }
}

/// Why a pull from these sources fails.
pub fn pull_error(snapshots: &Path, puller: u64, pull: &v1::PullWeights) -> Option<v1::PullError> {
    let version = pull.version.to_string();
    pull.sources.iter().find_map(|source| {
        let source = source.incarnation;
        let read = |name| std::fs::read_to_string(snapshots.join(name)).ok();
        let corrupt = read(format!("corrupt-{source}")).is_some_and(|of| of == version);
        let silent = |a, b| snapshots.join(format!("silent-{a}-{b}")).exists();
        let (kind, reason) = match (corrupt, silent(source, puller) || silent(puller, source)) {
            (true, _) => ("corrupt", "its digests differ"),
            (_, true) => ("source", "it says nothing"),
            _ => return None,
        };
        Some(v1::PullError {
            kind: kind.to_owned(),
            source,
            reason: reason.to_owned(),
        })
    })
}

impl Fake {
    /// A fault is asked for: now, or when the fake comes there.
    pub async fn arm(&mut self, up: &Up, fault: RoleFault) {
        if self.faults.known.insert(fault.id) {
            self.faults.armed.push(fault);
            self.enter(up, "").await;
        }
    }

    /// It is not wanted any more.
    pub fn disarm(&mut self, id: u64) {
        self.faults.armed.retain(|fault| fault.id != id);
    }

    /// Comes to a phase.
    pub async fn enter(&mut self, up: &Up, here: &str) {
        // A rank's loss, publication and calls are where their own code is.
        let own = |f: &RoleFault| {
            let call = f.kind == "exception" && !f.at.is_empty();
            self.hello.role == "trainer" && (call || ["nan", "corrupt-weights"].contains(&&*f.kind))
        };
        let due = |f: &mut RoleFault| f.at.split(':').next() == Some(here) && !own(f);
        let due: Vec<_> = self.faults.armed.extract_if(.., due).collect();
        for fault in due {
            self.strike(up, &fault).await;
        }
    }

    /// Whether a fault of this kind is to strike here; it is said.
    pub fn take(&mut self, up: &Up, kind: &str, here: &str) -> bool {
        let fits = |f: &RoleFault| f.kind == kind && (f.at.is_empty() || f.at == here);
        let Some(at) = self.faults.armed.iter().position(fits) else {
            return false;
        };
        let fault = self.faults.armed.remove(at);
        tell(up, fault.id);
        true
    }

    /// From now on whoever pulls this version here finds it corrupt.
    pub fn corrupt(&self, version: u64) {
        let name = format!("corrupt-{}", self.hello.incarnation);
        std::fs::write(self.snapshots.join(name), version.to_string()).unwrap();
    }

    async fn strike(&self, up: &Up, fault: &RoleFault) {
        tell(up, fault.id);
        let lasts = Duration::from_secs_f64(fault.seconds);
        match fault.kind.as_str() {
            "exit" => end(i32::try_from(fault.code).unwrap()).await,
            "exception" => {
                eprintln!("error: exception on request");
                end(1).await;
            }
            "corrupt-weights" => self.corrupt(self.hello.version.unwrap_or(0)),
            "hang-tool" => *HANG.lock().unwrap() = Some(Instant::now() + lasts),
            "stall-network" | "cut-network" => {
                let lasts = lasts.max(CUT);
                let name = format!(
                    "silent-{}-{}",
                    self.hello.incarnation, fault.peer_incarnation
                );
                let file = self.snapshots.join(name);
                std::fs::write(&file, "").unwrap();
                tokio::spawn(async move {
                    tokio::time::sleep(lasts).await;
                    let _ = std::fs::remove_file(file);
                });
            }
            other => panic!("`{other}` is done from outside"),
        }
    }
}

fn tell(up: &Up, id: u64) {
    let refused = String::new();
    say(up, Body::Struck(FaultStruck { id, refused }));
}

async fn end(code: i32) {
    tokio::time::sleep(LAST_WORDS).await;
    std::process::exit(code);
}
