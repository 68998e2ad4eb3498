//! Processes that wait for a life: started as lives are, in a session and a control group of their own, but as nobody.
//!
//! ```text
//!  keep ──► starting ── READY ──► ready ── take: Handed, TAKEN ──► watched as a life (watch.rs), in the same group
//!              │                    │         └─ no word in time: killed, the life is started as any other
//!              └──── its end, or nobody wants it any more ─────────► killed, reaped, its group removed
//! ```
//! A spare is taken at most once: who takes it has it out of the table first. It has no right until then, is nobody's to
//! the controller, and ends with the daemon that started it, by the end of its socket, which it watches while it loads, too.
use super::proc_stat::{ProcStat, hosted_by};
use super::{Running, SpawnError, SpawnSpec};
use robust_shared::ids::{Incarnation, Role};
use robust_shared::job::Passed;
use robust_shared::spare::{Handed, MOST_BYTES, NEVER_READY, READY, TAKEN};
use robust_tree::{Group, GroupLimits, NotTold, hand_over};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a spare may take to answer that it is a life: long for one that gets little of a processor, as a start would,
/// which follows then; one that hangs costs a restart no more than this.
const ANSWERS: Duration = Duration::from_millis(500);
/// Ends in a row of spares of a kind that were never ready, after which no more are started.
const FAILURES: u32 = 3;
/// In the watching thread's data it tells spares from lives, whose numbers come nowhere near.
const SPARE: u64 = 1 << 63;
/// The name of a spare's control group begins with this.
pub const GROUP_PREFIX: &str = "spare-";

/// How a spare is started, and by that which lives it can become.
#[derive(Clone, Debug, PartialEq)]
pub struct Parked {
    /// What it can become.
    pub role: Role,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// What passes to it of the daemon's own environment.
    pub passed: Passed,
    /// Set on top of that: all of a life's that is no secret and no identity.
    pub env: Vec<(String, String)>,
    /// Its output until it is a life.
    pub log_path: PathBuf,
    /// What limits it, as it will the life: in a control group of its own. None: it has no group.
    pub limits: Option<ParkedGroup>,
}

/// What a spare's control group has in common with a life's.
#[derive(Clone, Debug, PartialEq)]
pub struct ParkedGroup {
    /// What is limited by it.
    pub limits: GroupLimits,
    /// The table of the job file that says so.
    pub table: String,
    /// Without it the spare is not started.
    pub needed: bool,
}

/// A spare as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpareSeen {
    /// What it can become.
    pub role: Role,
    /// Its process.
    pub pid: u32,
    /// Whether it has done all that it can.
    pub ready: bool,
    /// Resident memory.
    pub rss_bytes: u64,
}

/// A process that waits.
pub(super) struct Spare {
    pub number: u64,
    pub parked: Parked,
    pub pidfd: OwnedFd,
    pub pid: Pid,
    pub process: Running,
    pub group: Option<Group>,
    socket: OwnedFd,
    ready: bool,
}

/// Why a spare is not the life that it was to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotTaken {
    /// It is gone, or says nothing.
    #[error(transparent)]
    NotTold(#[from] NotTold),
    #[error("its life cannot be told to it: {0}")]
    Untold(io::Error),
}

impl NotTaken {
    /// Whether others like it may be found in the same way: not if it ended by itself.
    pub fn may_be_of_others(&self) -> bool {
        !matches!(self, Self::NotTold(NotTold::Gone(_)))
    }
}

/// The spares of a launcher.
#[derive(Default)]
pub(super) struct Spares {
    parked: Vec<Spare>,
    /// Killed, and not yet reaped.
    ending: Vec<Spare>,
    /// Ends in a row of those that were never ready.
    failed: Vec<(Parked, u32)>,
    started: u64,
    /// How often all were ended.
    round: u64,
}

/// What becomes of the watching thread's word that a process ended.
pub(super) enum SpareEnd {
    /// It was one that waited: how often in a row those like it ended without being ready.
    Waiting(Spare, u32),
    /// It said that none like it will ever be ready.
    Never(Spare),
    /// It was killed from here, or says what is known.
    Killed(Spare),
}

impl Spares {
    /// The number of the next one.
    pub fn next(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    /// How often all were ended: what was begun in an earlier one is not wanted any more.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Kills all, and whoever is still being started.
    pub fn end_all(&mut self) {
        self.round += 1;
        self.end_others(&[]);
    }

    /// Kills all of a kind.
    pub fn end_like(&mut self, parked: &Parked) {
        let like = |spare: &mut Spare| spare.parked == *parked;
        let all: Vec<Spare> = self.parked.extract_if(.., like).collect();
        for spare in all {
            self.end(spare);
        }
    }

    /// How many of these are missing; none of a kind whose spares do not come up.
    pub fn missing(&self, parked: &Parked, wanted: u32) -> u32 {
        if self.is_hopeless(parked) {
            return 0;
        }
        let there = self.parked.iter().filter(|s| s.parked == *parked).count();
        wanted.saturating_sub(u32::try_from(there).unwrap_or(u32::MAX))
    }

    /// Whether no more of a kind are started.
    fn is_hopeless(&self, parked: &Parked) -> bool {
        let fails = |(of, times): &(Parked, u32)| of == parked && *times >= FAILURES;
        self.failed.iter().any(fails)
    }

    /// Whether there are as many of each of these as can be had, and no others.
    pub fn are(&self, wanted: &[(Parked, u32)]) -> bool {
        let enough = |(parked, count): &(Parked, u32)| self.missing(parked, *count) == 0;
        let is_wanted = |spare: &Spare| wanted.iter().any(|(of, _)| *of == spare.parked);
        let most: u32 = wanted.iter().map(|(_, count)| *count).sum();
        let few = self.parked.len() <= usize::try_from(most).unwrap_or(usize::MAX);
        few && wanted.iter().all(enough) && self.parked.iter().all(is_wanted)
    }

    /// One that waits from now on.
    pub fn add(&mut self, spare: Spare) {
        self.parked.push(spare);
    }

    /// Kills those that are not among these, or too many.
    pub fn end_others(&mut self, wanted: &[(Parked, u32)]) {
        let mut left: Vec<u32> = wanted.iter().map(|(_, count)| *count).collect();
        let mut kept = Vec::new();
        for spare in std::mem::take(&mut self.parked) {
            let at = wanted.iter().position(|(of, _)| *of == spare.parked);
            match at.filter(|at| left[*at] > 0) {
                Some(at) => {
                    left[at] -= 1;
                    kept.push(spare);
                }
                None => self.end(spare),
            }
        }
        self.parked = kept;
        let is_wanted = |(of, _): &(Parked, u32)| wanted.iter().any(|(wanted, _)| wanted == of);
        self.failed.retain(is_wanted);
    }

    /// Kills one that nobody has any more; it is reaped when the kernel says so.
    pub fn end(&mut self, spare: Spare) {
        // Not reaped yet, so the id is its own.
        let _ = kill_process_group(spare.pid, Signal::KILL);
        self.ending.push(spare);
    }

    /// One that is ready to be such a life, which nobody else has from now on.
    pub fn take(&mut self, parked: &Parked) -> Option<Spare> {
        let fits = |spare: &mut Spare| spare.parked == *parked && spare.is_ready();
        let at = self.parked.iter_mut().position(fits)?;
        self.failed.retain(|(of, _)| of != parked);
        Some(self.parked.swap_remove(at))
    }

    /// The one of this number has ended; none where it was made a life meanwhile.
    pub fn ended(&mut self, number: u64) -> Option<SpareEnd> {
        let is = |spare: &Spare| spare.number == number;
        if let Some(at) = self.ending.iter().position(is) {
            return Some(SpareEnd::Killed(self.ending.swap_remove(at)));
        }
        let at = self.parked.iter().position(is)?;
        let mut spare = self.parked.swap_remove(at);
        if spare.says_never() {
            let known = self.is_hopeless(&spare.parked);
            self.fail(&spare.parked, FAILURES);
            return Some(match known {
                // Another one said so before.
                true => SpareEnd::Killed(spare),
                false => SpareEnd::Never(spare),
            });
        }
        if spare.is_ready() {
            self.failed.retain(|(of, _)| *of != spare.parked);
            return Some(SpareEnd::Waiting(spare, 0));
        }
        let times = self.failed(&spare.parked);
        Some(SpareEnd::Waiting(spare, times))
    }

    /// One like this was never ready: how many that were in a row.
    pub fn failed(&mut self, parked: &Parked) -> u32 {
        self.fail(parked, 1)
    }

    fn fail(&mut self, parked: &Parked, more: u32) -> u32 {
        if let Some((_, times)) = self.failed.iter_mut().find(|(of, _)| of == parked) {
            *times = times.saturating_add(more);
            return *times;
        }
        self.failed.push((parked.clone(), more));
        more
    }

    /// Whether no more are started of a kind whose spares ended so often.
    pub fn is_given_up(times: u32) -> bool {
        times >= FAILURES
    }

    /// Those that wait.
    pub fn seen(&mut self) -> Vec<SpareSeen> {
        let seen = |spare: &mut Spare| {
            let pid = spare.process.pid;
            // With the program of the user's that waits beside it.
            let all = std::iter::once(pid).chain(hosted_by(pid));
            let pages = |pid| ProcStat::read(pid).map_or(0, |stat| stat.rss_pages);
            let pages: u64 = all.map(pages).sum();
            SpareSeen {
                role: spare.parked.role,
                pid,
                ready: spare.is_ready(),
                rss_bytes: pages.saturating_mul(rustix::param::page_size() as u64),
            }
        };
        self.parked.iter_mut().map(seen).collect()
    }
}

impl Spare {
    /// What the watching thread is told of its end by.
    pub fn data(number: u64) -> u64 {
        SPARE | number
    }

    /// The number of a spare that this names; none where it names a life.
    pub fn of_data(data: u64) -> Option<u64> {
        (data & SPARE != 0).then_some(data & !SPARE)
    }

    /// A process that was just started, by its number.
    pub fn new(number: u64, parked: Parked, of: Begun, socket: OwnedFd) -> Self {
        let Begun {
            pidfd,
            pid,
            process,
            group,
        } = of;
        Self {
            number,
            parked,
            pidfd,
            pid,
            process,
            group,
            socket,
            ready: false,
        }
    }

    /// Whether it ended, and its end says that none like it will ever be ready.
    fn says_never(&self) -> bool {
        let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let end = waitid(WaitId::PidFd(self.pidfd.as_fd()), only_look);
        let code = end.ok().flatten().and_then(|end| end.exit_status());
        code == Some(i32::from(NEVER_READY))
    }

    fn is_ready(&mut self) -> bool {
        let mut word = [0u8; 16];
        if !self.ready
            && let Ok((_, read)) = recv(&self.socket, &mut word, RecvFlags::DONTWAIT)
        {
            self.ready = &word[..read] == READY;
        }
        self.ready
    }

    /// Makes it this life, whose log is open; waits for its answer, for [`ANSWERS`] at most.
    pub(super) fn hand_over(&self, spec: &SpawnSpec, log: &OwnedFd) -> Result<(), NotTaken> {
        let handed = Handed {
            argv: spec.argv.clone(),
            env: spec.env.clone(),
        };
        // Texts alone: it always encodes.
        let text = serde_json::to_vec(&handed).unwrap_or_default();
        if text.len() > MOST_BYTES {
            return Err(NotTaken::Untold(io::ErrorKind::ArgumentListTooLong.into()));
        }
        hand_over(self.socket.as_fd(), &text, log.as_fd(), TAKEN, ANSWERS)?;
        Ok(())
    }
}

/// A spare's process as it was started.
pub(super) struct Begun {
    pub pidfd: OwnedFd,
    pub pid: Pid,
    pub process: Running,
    pub group: Option<Group>,
}

impl Parked {
    /// What is started.
    pub(super) fn spec(&self, number: u64) -> SpawnSpec {
        let role = self.role.name();
        let group = self.limits.as_ref().map(|of| super::LifeGroup {
            // Never that of a life which an earlier daemon's spare became.
            name: format!("{GROUP_PREFIX}{role}.{}.{number}", now_us()),
            limits: of.limits,
            table: of.table.clone(),
            needed: of.needed,
        });
        SpawnSpec {
            incarnation: Incarnation(0),
            argv: self.argv.clone(),
            passed: self.passed.clone(),
            env: self.env.clone(),
            log_path: self.log_path.clone(),
            header: format!("=== a spare for {role}"),
            group,
            parked: None,
        }
    }
}

fn now_us() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros())
}

/// Both ends of what a spare waits on: the daemon's, and its own.
pub(super) fn sockets() -> Result<(OwnedFd, OwnedFd), SpawnError> {
    let pair = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    pair.map_err(|source| SpawnError::Exec {
        program: "a spare".to_owned(),
        source: source.into(),
    })
}
