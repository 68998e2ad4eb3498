//! When a program counts as up that never attaches: its log says so, a file, or the time.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use regex::Regex;
use robust_shared::job::TrainerCommand;

use crate::error::ShimError;
use crate::log::Watch;

/// What is waited for, from before the program's start on.
pub enum ComesUp {
    /// Nothing.
    Now,
    /// A line of its log.
    Log(Watch),
    /// A file that is written since.
    File(PathBuf, SystemTime),
    /// Its having run so long.
    After(Duration, Instant),
}

impl ComesUp {
    /// As the job file says.
    pub fn begin(command: &TrainerCommand) -> Result<Self, ShimError> {
        let ready = &command.ready;
        if let Some(pattern) = &ready.log {
            // The job file was read, so it is an expression.
            let watch = Regex::new(pattern).ok().and_then(Watch::begin);
            let none = || ShimError::NeverUp("its log is no file that could be watched".to_owned());
            return watch.map(Self::Log).ok_or_else(none);
        }
        if let Some(path) = &ready.file {
            return Ok(Self::File(command.cwd.join(path), SystemTime::now()));
        }
        Ok(match ready.after() {
            Some(after) => Self::After(after, Instant::now()),
            None => Self::Now,
        })
    }

    /// Whether it came.
    pub fn is_up(&mut self) -> bool {
        match self {
            Self::Now => true,
            Self::Log(watch) => watch.found(),
            Self::File(path, since) => {
                let written = std::fs::metadata(path).and_then(|m| m.modified());
                // Clocks of file systems are coarse: a tick of theirs may lie before.
                written.is_ok_and(|at| at + Duration::from_millis(20) >= *since)
            }
            Self::After(after, begun) => begun.elapsed() >= *after,
        }
    }
}
