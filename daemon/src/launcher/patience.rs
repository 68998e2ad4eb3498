//! Reading from a disk that may stand still, for those who cannot wait for it.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Reads on threads of their own, and waits so long for each. One that is stuck makes the next give up
/// at once: many processes may end while the disk stands still.
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
        let stuck = Arc::clone(&self.stuck);
        stuck.fetch_add(1, Ordering::AcqRel);
        let reading = std::thread::Builder::new().name("patience".to_owned());
        let reading = reading.spawn(move || {
            let value = read();
            stuck.fetch_sub(1, Ordering::AcqRel);
            // Whoever wanted it may have given up.
            let _ = answer.send(value);
        });
        if reading.is_err() {
            // Dropped with what it was to run.
            self.stuck.fetch_sub(1, Ordering::AcqRel);
        }
        answered.recv_timeout(limit).ok()
    }
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
}
