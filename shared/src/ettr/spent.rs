//! Where the job's time went: every instant is in one [`Slice`].
//!
//! ```text
//!  turn ──► open stretch ──► sums      of the whole job, written down with the ledger's
//!                       └──► cells     5 s each, the last half hour   (windows)
//!                       └──► stretches the newest                     (what a slice is made of)
//!                              ▲
//!  lay_over ───────────────────┘  moves time of work into another slice, when it turned out to be waste,
//!                                 or that a fault had struck already
//! ```
//! Moving keeps the sum over all slices, so the slices of a window always add up to the time that was counted in
//! it. Cells and stretches are of this life of the daemon: after it a window has less than its length.
use super::Cause;
use crate::time::Time;
use crate::wire::Window;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// Microseconds of a cell.
const CELL: u64 = 5_000_000;
/// Cells kept: half an hour, and the one that it begins in.
const CELLS: u64 = 361;
/// Stretches kept: what is laid over others looks for them there.
const STRETCHES: usize = 512;
/// Stretches shown of each slice.
const SHOWN: usize = 12;
/// The windows, in seconds.
const WINDOWS: [(Window, u64); 3] = [
    (Window::FiveMinutes, 300),
    (Window::TenMinutes, 600),
    (Window::HalfHour, 1_800),
];

/// What an instant of the job is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slice {
    /// The trainer computes, beside engines that generate or while they have nothing to do.
    Useful,
    /// No call to the trainer is under way: its next batch is not complete.
    WaitsForData,
    /// Nobody generates while an engine fetches weights.
    WaitsForWeights,
    /// The trainer is in a call without computing, or slots change hands: snapshot, publish, reshard.
    Between,
    /// A fault that stops the trainer had struck, and was not found yet.
    Detect,
    /// It was found, and not all new processes are attached.
    Restart,
    /// They are attached, and useful work does not go on yet.
    Reconnect,
    /// Work whose result was thrown away.
    Replayed,
    /// An operator holds the job.
    Paused,
    /// Nothing was ever published.
    Start,
}

crate::wire::named! {
    Slice:
    /// Its name in the protocol.
    name {
        Useful = "useful",
        WaitsForData = "waits_for_data",
        WaitsForWeights = "waits_for_weights",
        Between = "between",
        Detect = "detect",
        Restart = "restart",
        Reconnect = "reconnect",
        Replayed = "replayed",
        Paused = "paused",
        Start = "start",
    }
}

impl Slice {
    /// Every one, in the order in which they are shown.
    pub const ALL: [Slice; 10] = [
        Slice::Useful,
        Slice::WaitsForData,
        Slice::WaitsForWeights,
        Slice::Between,
        Slice::Detect,
        Slice::Restart,
        Slice::Reconnect,
        Slice::Replayed,
        Slice::Paused,
        Slice::Start,
    ];

    /// What an instant with this cause is, where the rest is so.
    pub fn of(cause: Cause, seen: Seen) -> Slice {
        match cause {
            Cause::Initialisation => Slice::Start,
            Cause::TrainerRecovers | Cause::Recovery | Cause::TaskRestart if seen.attached => {
                Slice::Reconnect
            }
            Cause::TrainerRecovers | Cause::Recovery | Cause::TaskRestart => Slice::Restart,
            Cause::Both => Slice::Useful,
            Cause::Training if seen.pulls => Slice::WaitsForWeights,
            Cause::Training => Slice::Useful,
            Cause::Paused => Slice::Paused,
            // The last turns are generated while the job is held.
            Cause::Generation | Cause::Blocked if seen.idle && seen.paused => Slice::Paused,
            Cause::Blocked if seen.pulls => Slice::WaitsForWeights,
            Cause::Generation | Cause::Blocked if seen.idle => Slice::WaitsForData,
            Cause::Generation | Cause::Blocked | Cause::ContextSwitch => Slice::Between,
            Cause::StepRepeated | Cause::GenerationRepeated => Slice::Replayed,
        }
    }

    /// Whether the job is on its way back from a fault.
    pub fn is_recovery(self) -> bool {
        matches!(self, Slice::Restart | Slice::Reconnect)
    }

    /// Whether it may turn out to be something else.
    fn is_work(self) -> bool {
        matches!(
            self,
            Slice::Useful | Slice::WaitsForData | Slice::WaitsForWeights | Slice::Between
        )
    }
}

/// What tells slices of one cause apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The trainer is restored, and no call to it is under way.
    pub idle: bool,
    /// An engine fetches weights.
    pub pulls: bool,
    /// An operator paused the job.
    pub paused: bool,
    /// All new processes of what recovers are attached.
    pub attached: bool,
}

/// Time in one slice without a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Which slice.
    pub slice: Slice,
    /// Its begin.
    pub from: Time,
    /// Its end, exclusive.
    pub to: Time,
    /// It was laid over others afterwards, which had counted the time until then.
    pub over: bool,
}

/// What the slices of a window came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowSpent {
    /// Which.
    pub name: Window,
    /// Its begin: of the whole job, or on a multiple of five seconds.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// Of those that have any time, in the order of [`Slice::ALL`].
    pub slices: Vec<(Slice, Duration)>,
}

/// Where the time went, by one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// Those that the job is as old as, shortest first, and the whole job.
    pub windows: Vec<WindowSpent>,
    /// The newest twelve of each slice, oldest first.
    pub stretches: Vec<Stretch>,
}

type Shares = [u64; Slice::ALL.len()];

/// The account. See the module's doc.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spent {
    /// Microseconds of each slice since the job began, in the order of [`Slice::ALL`].
    sums: Shares,
    /// The present one, and since when it is not counted.
    doing: Option<(Slice, Time)>,
    #[serde(skip)]
    recent: Recent,
}

impl Spent {
    /// The present slice.
    pub(super) fn doing(&self) -> Option<Slice> {
        self.doing.map(|(slice, _)| slice)
    }

    /// From `now` on it is this one; whether it was another one before.
    pub(super) fn turn(&mut self, now: Time, slice: Slice) -> bool {
        if self.doing() == Some(slice) {
            return false;
        }
        self.settle(now);
        let from = self.doing.map_or(now, |(_, from)| from.max(now));
        self.doing = Some((slice, from));
        true
    }

    /// Nothing is counted from `now` on.
    pub(super) fn stop(&mut self, now: Time) {
        self.settle(now);
        self.doing = None;
    }

    /// Counts what the present one came to.
    pub(super) fn settle(&mut self, now: Time) {
        let Some((slice, from)) = self.doing.filter(|(_, from)| *from < now) else {
            return;
        };
        self.doing = Some((slice, now));
        self.sums[slice as usize] += now.0 - from.0;
        self.recent.add(slice, from, now);
    }

    /// Of the work from `from` to `to`, the part `value` was `into`: what is open there was settled before.
    pub(super) fn lay_over(&mut self, from: Time, to: Time, value: f64, into: Slice) {
        if from >= to {
            return;
        }
        let known = self.recent.known(from, to);
        let lost = to.0.saturating_sub(known.0) as f64 * value;
        for (slice, taken) in self.recent.take(from, to, lost, into) {
            self.shift(slice, taken, into);
        }
        // Nobody remembers what was before: most of it was useful.
        let before = known.0.saturating_sub(from.0) as f64 * value;
        self.shift(Slice::Useful, before, into);
        let over = true;
        self.recent.push(Piece::of(into, from, to, over));
    }

    fn shift(&mut self, slice: Slice, micros: f64, into: Slice) {
        let taken = (micros.max(0.0).round() as u64).min(self.sums[slice as usize]);
        self.sums[slice as usize] -= taken;
        self.sums[into as usize] += taken;
    }

    /// All of it as it is at `now`, of a job that began at `origin`.
    pub(super) fn at(&self, origin: Time, now: Time) -> TimeSpent {
        let mut settled = self.clone();
        settled.settle(now);
        let recent = &settled.recent;
        let lengths = WINDOWS.iter();
        let old = lengths.filter(|(_, s)| now.since(origin) >= Duration::from_secs(*s));
        let mut windows: Vec<WindowSpent> = old
            .map(|&(name, s)| {
                let from = now - Duration::from_secs(s);
                let from = Time(from.0 / CELL * CELL).max(origin);
                let slices = slices(&recent.sum(from));
                WindowSpent {
                    name,
                    from,
                    to: now,
                    slices,
                }
            })
            .collect();
        windows.push(WindowSpent {
            name: Window::Job,
            from: origin,
            to: now,
            slices: slices(&settled.sums),
        });
        TimeSpent {
            windows,
            stretches: recent.shown(),
        }
    }
}

/// Those that have any time.
fn slices(shares: &Shares) -> Vec<(Slice, Duration)> {
    let all = Slice::ALL.into_iter().zip(shares);
    all.filter(|(_, micros)| **micros > 0)
        .map(|(slice, micros)| (slice, Duration::from_micros(*micros)))
        .collect()
}

/// The last half hour. It is not written down, so two of them are always equal.
#[derive(Clone, Debug, Default)]
struct Recent {
    /// Oldest first; the last is number `end - 1` since time zero.
    cells: VecDeque<Shares>,
    end: u64,
    /// In the order in which they ended, or were laid over others.
    pieces: VecDeque<Piece>,
}

/// A stretch, or a part of one.
#[derive(Clone, Copy, Debug)]
struct Piece {
    stretch: Stretch,
    /// The share of it that nothing was laid over yet.
    left: f64,
}

impl Piece {
    fn of(slice: Slice, from: Time, to: Time, over: bool) -> Self {
        let stretch = Stretch {
            slice,
            from,
            to,
            over,
        };
        Piece { stretch, left: 1.0 }
    }

    /// Microseconds of it that nothing was laid over.
    fn own(&self) -> f64 {
        (self.stretch.to.0 - self.stretch.from.0) as f64 * self.left
    }

    /// Whether it is work, and wholly between two instants.
    fn is_work_within(&self, from: Time, to: Time) -> bool {
        let Stretch { slice, over, .. } = self.stretch;
        !over && slice.is_work() && self.stretch.from >= from && self.stretch.to <= to
    }
}

impl PartialEq for Recent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Recent {
    fn add(&mut self, slice: Slice, from: Time, to: Time) {
        let oldest = (to.0 / CELL).saturating_sub(CELLS) * CELL;
        for (cell, micros) in parts(from.0.max(oldest), to.0) {
            self.make(cell);
            if let Some(shares) = self.cell(cell) {
                shares[slice as usize] += micros;
            }
        }
        let goes_on = |last: &Piece| {
            let Stretch { over, .. } = last.stretch;
            let same = last.stretch.slice == slice && last.stretch.to == from;
            !over && same && last.left >= 1.0
        };
        match self.pieces.back_mut() {
            Some(last) if goes_on(last) => last.stretch.to = to,
            _ => self.push(Piece::of(slice, from, to, false)),
        }
    }

    fn push(&mut self, piece: Piece) {
        self.pieces.push_back(piece);
        while self.pieces.len() > STRETCHES {
            self.pieces.pop_front();
        }
    }

    /// Parts every piece of time that goes on over this instant.
    fn part(&mut self, at: Time) {
        let over = |p: &Piece| !p.stretch.over && p.stretch.from < at && at < p.stretch.to;
        if let Some(number) = self.pieces.iter().position(over) {
            let mut later = self.pieces[number];
            self.pieces[number].stretch.to = at;
            later.stretch.from = at;
            self.pieces.insert(number + 1, later);
        }
    }

    /// There are cells up to this one.
    fn make(&mut self, cell: u64) {
        if self.cells.is_empty() || cell >= self.end + CELLS {
            self.cells.clear();
            self.end = cell;
        }
        while self.end <= cell {
            self.cells.push_back(Shares::default());
            self.end += 1;
        }
        while self.cells.len() as u64 > CELLS {
            self.cells.pop_front();
        }
    }

    fn first(&self) -> u64 {
        self.end - self.cells.len() as u64
    }

    fn cell(&mut self, cell: u64) -> Option<&mut Shares> {
        let at = usize::try_from(cell.checked_sub(self.first())?).ok()?;
        self.cells.get_mut(at)
    }

    /// From when on all pieces between two instants are known.
    fn known(&self, from: Time, to: Time) -> Time {
        let mut plain = self.pieces.iter().filter(|p| !p.stretch.over);
        let first = plain.next();
        first.map_or(to, |p| p.stretch.from.clamp(from, to))
    }

    /// Moves so many microseconds of the work between two instants into another slice, as far as it has them still: what was
    /// moved of each slice.
    fn take(&mut self, from: Time, to: Time, micros: f64, into: Slice) -> Vec<(Slice, f64)> {
        self.part(from);
        self.part(to);
        let work = |p: &&mut Piece| p.is_work_within(from, to);
        let there: f64 = self.pieces.iter_mut().filter(work).map(|p| p.own()).sum();
        let share = (micros / there.max(1.0)).clamp(0.0, 1.0);
        let mut moved = Vec::new();
        for piece in self.pieces.iter_mut().filter(work) {
            moved.push((piece.stretch, piece.left * share));
            piece.left *= 1.0 - share;
        }
        let taken = moved.into_iter().map(|(stretch, part)| {
            self.shift(stretch, part, into);
            let length = (stretch.to.0 - stretch.from.0) as f64;
            (stretch.slice, length * part)
        });
        taken.collect()
    }

    /// Moves a part of a stretch in its cells.
    fn shift(&mut self, stretch: Stretch, part: f64, into: Slice) {
        let slice = stretch.slice as usize;
        for (cell, micros) in parts(stretch.from.0, stretch.to.0) {
            if let Some(shares) = self.cell(cell) {
                let taken = ((micros as f64 * part).round() as u64).min(shares[slice]);
                shares[slice] -= taken;
                shares[into as usize] += taken;
            }
        }
    }

    /// What the cells from the one that begins at `from` came to.
    fn sum(&self, from: Time) -> Shares {
        let skipped = (from.0 / CELL).saturating_sub(self.first());
        let cells = self.cells.iter();
        let cells = cells.skip(usize::try_from(skipped).unwrap_or(usize::MAX));
        cells.fold(Shares::default(), |mut sum, shares| {
            let pairs = sum.iter_mut().zip(shares);
            pairs.for_each(|(sum, micros)| *sum += micros);
            sum
        })
    }

    /// The newest of each slice, oldest first.
    fn shown(&self) -> Vec<Stretch> {
        let mut left = [SHOWN; Slice::ALL.len()];
        let mut shown: Vec<Stretch> = Vec::new();
        for stretch in self.pieces.iter().rev().map(|piece| piece.stretch) {
            let mut told = shown.iter_mut().rev();
            let next = told.find(|s| s.slice == stretch.slice && !s.over);
            match next {
                // Parts of one stretch.
                Some(next) if !stretch.over && next.from == stretch.to => next.from = stretch.from,
                _ if left[stretch.slice as usize] > 0 => {
                    left[stretch.slice as usize] -= 1;
                    shown.push(stretch);
                }
                _ => {}
            }
        }
        shown.sort_by_key(|s| s.from);
        shown
    }
}

/// The cells between two instants, each with the microseconds that it has of them.
fn parts(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let cell = at / CELL;
        let until = ((cell + 1) * CELL).min(to);
        let micros = until.checked_sub(at).filter(|micros| *micros > 0)?;
        at = until;
        Some((cell, micros))
    })
}

#[cfg(test)]
#[path = "spent_tests.rs"]
mod tests;
