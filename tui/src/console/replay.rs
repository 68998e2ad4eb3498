//! Playing a recording: real time in, due events out.
//!
//! ```text
//!            Pause                    the end is reached
//!   Playing ◄─────► Paused    Playing ─────────────────► Paused at the end
//!      └── Seek: back begins anew and catches up at once, on skips ahead ──┘
//! ```
//! No clock in here: `real` is the caller's, in milliseconds.
use super::event::{Play, Playback};
use super::record::{Recording, Said};

/// How much slower or faster than it was a recording can run.
const SPEEDS: (f64, f64) = (0.125, 64.0);

/// Where a recording is.
pub struct Player {
    recording: Recording,
    /// The next entry.
    next: usize,
    /// Recorded time that is shown.
    at: f64,
    real: u64,
    speed: f64,
    paused: bool,
}

/// What a step of the player brought.
#[derive(Debug, Default, PartialEq)]
pub struct Due {
    /// All that was known is to be forgotten first.
    pub anew: bool,
    /// With their times.
    pub said: Vec<(u64, Said)>,
}

impl Player {
    /// At the begin, running.
    pub fn new(recording: Recording, real: u64) -> Player {
        let at = recording.entries.first().map_or(0, |e| e.at) as f64;
        Player {
            recording,
            next: 0,
            at,
            real,
            speed: 1.0,
            paused: false,
        }
    }

    /// Where it is.
    pub fn playback(&self) -> Playback {
        let (from, to) = self.ends();
        Playback {
            from,
            to,
            at: self.at as u64,
            speed: self.speed,
            paused: self.paused,
        }
    }

    /// Time went by.
    pub fn tick(&mut self, real: u64) -> Due {
        let past = real.saturating_sub(self.real) as f64;
        self.real = real;
        if !self.paused {
            self.at += past * self.speed;
        }
        self.catch_up()
    }

    /// The operator steers it.
    pub fn steer(&mut self, play: Play, real: u64) -> Due {
        let mut due = self.tick(real);
        match play {
            Play::Pause => self.paused = !self.paused && self.next < self.recording.entries.len(),
            Play::Faster => self.speed = (self.speed * 2.0).min(SPEEDS.1),
            Play::Slower => self.speed = (self.speed / 2.0).max(SPEEDS.0),
            Play::Seek(by) => {
                let (from, to) = self.ends();
                self.at = (self.at + by as f64).clamp(from as f64, to as f64);
                if by < 0 {
                    self.next = 0;
                    self.paused = false;
                    due = Due {
                        anew: true,
                        said: Vec::new(),
                    };
                }
                due.said.extend(self.catch_up().said);
            }
        }
        due
    }

    fn ends(&self) -> (u64, u64) {
        let entries = &self.recording.entries;
        let first = entries.first().map_or(0, |e| e.at);
        (first, entries.last().map_or(first, |e| e.at))
    }

    fn catch_up(&mut self) -> Due {
        let mut said = Vec::new();
        while let Some(entry) = self.recording.entries.get(self.next) {
            if entry.at as f64 > self.at {
                break;
            }
            said.push((entry.at, entry.said.clone()));
            self.next += 1;
        }
        if self.next == self.recording.entries.len() {
            self.paused = true;
            self.at = self.ends().1 as f64;
        }
        Due { anew: false, said }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Entry;
    use super::*;

    /// Entries every second from 1,000 on.
    fn player(entries: u64) -> Player {
        let said = |n| Said::Lost(format!("{n}"));
        let entry = |n| Entry {
            at: 1_000 * n,
            said: said(n),
        };
        let recording = Recording {
            place: String::new(),
            entries: (1..=entries).map(entry).collect(),
        };
        Player::new(recording, 50)
    }

    fn times(due: &Due) -> Vec<u64> {
        due.said.iter().map(|(at, _)| *at).collect()
    }

    #[test]
    fn it_runs_as_fast_as_it_was_and_twice_as_fast_when_told() {
        let mut player = player(10);
        assert_eq!(times(&player.tick(50)), [1_000]);
        assert_eq!(times(&player.tick(1_049)), [0; 0]);
        assert_eq!(times(&player.tick(1_050)), [2_000]);
        let _ = player.steer(Play::Faster, 1_050);
        assert_eq!(times(&player.tick(2_050)), [3_000, 4_000]);
    }

    #[test]
    fn a_pause_holds_time_and_the_end_is_a_pause() {
        let mut player = player(3);
        let _ = player.steer(Play::Pause, 50);
        assert_eq!(times(&player.tick(9_000)), [0; 0]);
        let _ = player.steer(Play::Pause, 9_000);
        assert_eq!(times(&player.tick(20_000)), [2_000, 3_000]);
        let playback = player.playback();
        assert!(playback.paused && playback.at == playback.to);
        assert!(!player.steer(Play::Pause, 21_000).anew);
        assert!(!player.playback().paused || playback.paused);
    }

    #[test]
    fn going_back_begins_anew_and_hears_all_up_to_there() {
        let mut player = player(20);
        let _ = player.tick(12_050);
        let back = player.steer(Play::Seek(-10_000), 12_050);
        assert!(back.anew);
        assert_eq!(times(&back), [1_000, 2_000, 3_000]);
        let on = player.steer(Play::Seek(2_000), 12_050);
        assert_eq!((on.anew, times(&on)), (false, vec![4_000, 5_000]));
        let first = player.steer(Play::Seek(-99_000), 12_050);
        assert_eq!(times(&first), [1_000]);
    }
}
