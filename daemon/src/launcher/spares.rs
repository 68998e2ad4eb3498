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
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a spare may take to answer that it is a life: long for one that gets little of a processor, as a start would,
/// which follows then; one that hangs costs a restart no more than this.
const ANSWERS: Duration = Duration::from_millis(500);
/// Failures in a row of spares of a kind, after which no more are started.
const FAILURES: u32 = 3;
/// A spare that waited so long and ends has not failed. One that ends earlier, by itself or for want of memory, would be
/// followed by another start after another, beside those who train.
const STEADY: Duration = Duration::from_secs(5 * 60);
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
    begun: Instant,
    /// Since when it has been seen to have done all that it can.
    ready: Option<Instant>,
}

/// What went wrong with spares of a kind.
struct Failures {
    parked: Parked,
    /// How often in a row.
    times: u32,
    /// When it did last.
    last: Instant,
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
    failed: Vec<Failures>,
    started: u64,
    /// How often all were ended.
    round: u64,
}

/// What becomes of the watching thread's word that a process ended.
pub(super) enum SpareEnd {
    /// It was one that waited: how often in a row those like it failed, where its end is one more failure.
    Waiting(Spare, Option<u32>),
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
        let failed = self.failed.iter().find(|failed| failed.parked == *parked);
        failed.is_some_and(|failed| failed.times >= FAILURES)
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
        let is_wanted = |of: &Parked| wanted.iter().any(|(wanted, _)| wanted == of);
        self.failed.retain(|failed| is_wanted(&failed.parked));
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
        self.forgive(parked);
        Some(self.parked.swap_remove(at))
    }

    /// The one of this number ended then; none where it was made a life meanwhile.
    pub fn ended(&mut self, number: u64, at: Instant) -> Option<SpareEnd> {
        let is = |spare: &Spare| spare.number == number;
        if let Some(place) = self.ending.iter().position(is) {
            return Some(SpareEnd::Killed(self.ending.swap_remove(place)));
        }
        let place = self.parked.iter().position(is)?;
        let mut spare = self.parked.swap_remove(place);
        if spare.says_never() {
            let known = self.is_hopeless(&spare.parked);
            self.fail(&spare.parked, FAILURES, at);
            return Some(match known {
                // Another one said so before.
                true => SpareEnd::Killed(spare),
                false => SpareEnd::Never(spare),
            });
        }
        let times = match spare.ready_since() {
            Some(since) if at.saturating_duration_since(since) > STEADY => {
                self.forgive(&spare.parked);
                None
            }
            // A file that was changed ends the spares of all ranks at once, and is one failure.
            Some(_) if self.has_failed_since(&spare) => None,
            _ => Some(self.failed(&spare.parked, at)),
        };
        Some(SpareEnd::Waiting(spare, times))
    }

    /// Whether one like it failed while it was there.
    fn has_failed_since(&self, spare: &Spare) -> bool {
        let mut like = self.failed.iter().filter(|of| of.parked == spare.parked);
        like.any(|failed| failed.last >= spare.begun)
    }

    /// One like this failed: how many did in a row.
    pub fn failed(&mut self, parked: &Parked, at: Instant) -> u32 {
        self.fail(parked, 1, at)
    }

    fn fail(&mut self, parked: &Parked, more: u32, at: Instant) -> u32 {
        if let Some(failed) = self.failed.iter_mut().find(|of| of.parked == *parked) {
            failed.times = failed.times.saturating_add(more);
            failed.last = at;
            return failed.times;
        }
        self.failed.push(Failures {
            parked: parked.clone(),
            times: more,
            last: at,
        });
        more
    }

    /// One like this was as it should be. A kind that was given up stays so until the job file is changed.
    fn forgive(&mut self, parked: &Parked) {
        let stays = |failed: &Failures| failed.parked != *parked || failed.times >= FAILURES;
        self.failed.retain(stays);
    }

    /// Whether it is with this failure in a row that no more of a kind are started.
    pub fn is_last(times: u32) -> bool {
        times == FAILURES
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
            begun: Instant::now(),
            ready: None,
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
        self.ready_since().is_some()
    }

    fn ready_since(&mut self) -> Option<Instant> {
        let mut word = [0u8; 16];
        if self.ready.is_none()
            && let Ok((_, read)) = recv(&self.socket, &mut word, RecvFlags::DONTWAIT)
        {
            self.ready = (&word[..read] == READY).then(Instant::now);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::net::{SendFlags, send};
    use rustix::process::{PidfdFlags, pidfd_open};
    use std::process::{Child, Command};

    fn kind() -> Parked {
        Parked {
            role: Role::Trainer,
            argv: vec!["true".to_owned()],
            passed: Passed::default(),
            env: Vec::new(),
            log_path: PathBuf::new(),
            limits: None,
        }
    }

    /// Spares that said that they are ready, by numbers from this one on, and their processes.
    fn ready(spares: &mut Spares, first: u64, count: u64) -> Vec<Child> {
        let numbers = first..first + count;
        let start = |number| {
            let child = Command::new("true").spawn().unwrap();
            let pid = Pid::from_child(&child);
            let begun = Begun {
                pidfd: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
                pid,
                process: Running {
                    pid: child.id(),
                    start_time: 0,
                },
                group: None,
            };
            let (ours, its) = sockets().unwrap();
            send(&its, READY, SendFlags::empty()).unwrap();
            let mut spare = Spare::new(number, kind(), begun, ours);
            assert!(spare.is_ready());
            spares.add(spare);
            child
        };
        numbers.map(start).collect()
    }

    /// How many failures in a row the end of this one makes, where it is one.
    fn failures(spares: &mut Spares, number: u64, at: Instant) -> Option<u32> {
        match spares.ended(number, at).unwrap() {
            SpareEnd::Waiting(_, times) => times,
            SpareEnd::Never(_) | SpareEnd::Killed(_) => Some(u32::MAX),
        }
    }

    fn reap(children: Vec<Child>) {
        for mut child in children {
            child.wait().unwrap();
        }
    }

    #[test]
    fn spares_that_end_soon_after_they_were_ready_are_given_up_and_those_that_waited_long_are_not()
    {
        let mut spares = Spares::default();
        let children = ready(&mut spares, 1, 1);
        let later = Instant::now() + STEADY + Duration::from_secs(1);
        assert_eq!(failures(&mut spares, 1, later), None);
        reap(children);
        for number in 2..5 {
            assert_eq!(spares.missing(&kind(), 1), 1, "another one is started");
            let children = ready(&mut spares, number, 1);
            let times = failures(&mut spares, number, Instant::now()).unwrap();
            assert_eq!(u64::from(times), number - 1);
            assert_eq!(Spares::is_last(times), number == 4);
            reap(children);
        }
        assert_eq!(spares.missing(&kind(), 1), 0);
    }

    #[test]
    fn one_change_that_ends_the_spares_of_all_ranks_is_one_failure() {
        let mut spares = Spares::default();
        let children = ready(&mut spares, 1, 4);
        let all = [1, 2, 3, 4].map(|number| failures(&mut spares, number, Instant::now()));
        assert_eq!(all, [Some(1), None, None, None]);
        assert_eq!(spares.missing(&kind(), 4), 4);
        reap(children);
    }

    #[test]
    fn a_kind_that_was_given_up_is_not_started_again_because_one_of_it_was_ready() {
        let mut spares = Spares::default();
        let children = ready(&mut spares, 1, 2);
        spares.fail(&kind(), FAILURES, Instant::now());
        assert!(spares.take(&kind()).is_some(), "it is used all the same");
        let later = Instant::now() + STEADY + Duration::from_secs(1);
        let left = spares.parked[0].number;
        assert_eq!(failures(&mut spares, left, later), None);
        assert_eq!(spares.missing(&kind(), 2), 0);
        // Another revision of the job file.
        spares.end_others(&[]);
        assert_eq!(spares.missing(&kind(), 2), 2);
        reap(children);
    }
}
