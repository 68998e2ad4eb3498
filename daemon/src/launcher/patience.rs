//! Reading from a disk that may stand still, for those who cannot wait for it.
use super::proc_stat::ProcStat;
use rustix::thread::gettid;
use std::num::NonZeroI32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a thread is waited for that wants a processor and gets none: what it reads is worth that.
const BUSY: Duration = Duration::from_secs(2);

/// Reads on threads of their own, and waits so long for each. One that is stuck makes the next give up
/// at once: many processes may end while the disk stands still. One that only waits for a processor is
/// not stuck, and is waited for longer.
#[derive(Clone, Debug, Default)]
pub(super) struct Patience {
    stuck: Arc<AtomicUsize>,
}

impl Patience {
    /// What was read within the limit.
    pub fn read<T: Send + 'static>(
        &self,
        limit: Duration,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.stuck.load(Ordering::Acquire) > 0 {
            return None;
        }
        let (answer, answered) = channel();
        let (begins, begun) = channel();
        let stuck = Arc::clone(&self.stuck);
        stuck.fetch_add(1, Ordering::AcqRel);
        let reading = std::thread::Builder::new().name("patience".to_owned());
        let reading = reading.spawn(move || {
            // Whoever wanted it may have given up.
            let _ = begins.send(gettid().as_raw_nonzero());
            let value = read();
            stuck.fetch_sub(1, Ordering::AcqRel);
            let _ = answer.send(value);
        });
        if reading.is_err() {
            // Dropped with what it was to run.
            self.stuck.fetch_sub(1, Ordering::AcqRel);
        }
        let deadline = Instant::now() + limit.max(BUSY);
        let mut thread = None;
        loop {
            match answered.recv_timeout(limit) {
                Ok(value) => return Some(value),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    thread = thread.or_else(|| begun.try_recv().ok());
                    let waits_for_the_disk =
                        thread.is_some_and(|thread| !wants_a_processor(thread));
                    if waits_for_the_disk || Instant::now() >= deadline {
                        return None;
                    }
                }
            }
        }
    }
}

/// Whether a thread of this process runs, or would.
fn wants_a_processor(thread: NonZeroI32) -> bool {
    let stat = ProcStat::read_from(&format!("/proc/self/task/{thread}/stat"));
    // It may have ended meanwhile, with what it read.
    stat.map_or(true, |stat| stat.state == 'R')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_read_that_stands_still_is_waited_for_once_and_reads_go_on_after_it() {
        let patience = Patience::default();
        assert_eq!(patience.read(LONG, || 7), Some(7));
        let (go_on, wait) = channel::<()>();
        let stuck = patience.read(Duration::from_millis(20), move || wait.recv().is_ok());
        assert_eq!(stuck, None);
        let before = Instant::now();
        assert_eq!(patience.read(LONG, || 8), None);
        assert!(before.elapsed() < LONG / 2, "nobody waits behind it");
        go_on.send(()).unwrap();
        while patience.stuck.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(patience.read(LONG, || 9), Some(9));
    }

    #[test]
    fn a_read_that_wants_a_processor_is_waited_for_longer() {
        let patience = Patience::default();
        let limit = Duration::from_millis(5);
        let computes = move || {
            let before = Instant::now();
            while before.elapsed() < limit * 20 {
                std::hint::spin_loop();
            }
            7
        };
        assert_eq!(patience.read(limit, computes), Some(7));
    }
}
