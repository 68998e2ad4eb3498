//! A spare that is still loading when its daemon ends.
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::libc::O_NONBLOCK;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

const LONG: Duration = Duration::from_secs(30);

/// Killed with the test, if it has not ended by then.
struct Spare(Child);

impl Drop for Spare {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what} within {LONG:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_spare_that_is_loading_ends_with_its_daemon() {
    let folder = tempfile::tempdir().unwrap();
    // A job file whose end never comes.
    let job = folder.path().join("job.json");
    mkfifo(&job, Mode::S_IRWXU).unwrap();
    let (daemon, its) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let mut spare = Spare(
        Command::new(env!("CARGO_BIN_EXE_robust-worker"))
            .args(["spare", "trainer", "--job"])
            .arg(&job)
            .arg("--snapshot-dir")
            .arg(folder.path())
            .stdin(Stdio::from(its))
            .spawn()
            .unwrap(),
    );
    let _writer = until("the spare to read its job file", || {
        // Without a reader this fails.
        let mut options = OpenOptions::new();
        let options = options.write(true).custom_flags(O_NONBLOCK);
        options.open(&job).ok()
    });
    assert!(spare.0.try_wait().unwrap().is_none(), "its daemon is there");
    drop(daemon);
    until("the spare to end", || spare.0.try_wait().unwrap());
}
