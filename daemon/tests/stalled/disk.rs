//! A disk that stands still: whoever opens or reads a file on it waits, for as long as the test wants.
//!
//! The kernel asks this process before it lets anybody at a file of the mount (fanotify's permission
//! events), and gets no answer meanwhile. The database's file is opened before it is synced, so that a
//! group of writes does not come to its end; nothing in the daemon knows of any of this.
use nix::fcntl::AT_FDCWD;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::fanotify::{
    EventFFlags, Fanotify, FanotifyEvent, FanotifyResponse, InitFlags, MarkFlags, MaskFlags,
    Response,
};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// How long the thread sleeps that asks whether it is still wanted.
const LOOK: u16 = 20;

/// Whom the disk keeps waiting.
#[derive(Default)]
struct Held {
    waiting: Vec<FanotifyEvent>,
    answers: bool,
    over: bool,
}

/// Stands still from its making until it goes on, or is dropped.
pub struct StandingDisk {
    group: Arc<Fanotify>,
    held: Arc<Mutex<Held>>,
    listener: Option<JoinHandle<()>>,
    pub since: Instant,
}

impl StandingDisk {
    /// The mount at this folder, in this thread's namespace.
    pub fn at(mount: &Path) -> nix::Result<Self> {
        let class = InitFlags::FAN_CLASS_CONTENT | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let files = EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC;
        let group = Arc::new(Fanotify::init(class, files)?);
        let held = Arc::new(Mutex::new(Held::default()));
        let listener = {
            let (group, held) = (Arc::clone(&group), Arc::clone(&held));
            std::thread::spawn(move || listen(&group, &held))
        };
        let disk = Self {
            group,
            held,
            listener: Some(listener),
            since: Instant::now(),
        };
        let asked = MaskFlags::FAN_OPEN_PERM | MaskFlags::FAN_ACCESS_PERM;
        let add = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_MOUNT;
        disk.group.mark(add, asked, AT_FDCWD, Some(mount))?;
        Ok(disk)
    }

    /// Whether somebody waits for this file.
    pub fn keeps_waiting(&self, file: &Path) -> bool {
        let held = self.held.lock().unwrap();
        held.waiting.iter().any(|event| path(event).ends_with(file))
    }

    /// Lets everybody go on.
    pub fn go_on(mut self) {
        self.end();
    }

    fn end(&mut self) {
        {
            let mut held = self.held.lock().unwrap();
            held.answers = true;
            for event in held.waiting.drain(..) {
                allow(&self.group, &event);
            }
        }
        let flush = MarkFlags::FAN_MARK_FLUSH | MarkFlags::FAN_MARK_MOUNT;
        let _ = self
            .group
            .mark(flush, MaskFlags::empty(), AT_FDCWD, None::<&Path>);
        self.held.lock().unwrap().over = true;
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Drop for StandingDisk {
    fn drop(&mut self) {
        self.end();
    }
}

fn listen(group: &Fanotify, held: &Mutex<Held>) {
    loop {
        let mut asked = [PollFd::new(group.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut asked, PollTimeout::from(LOOK));
        let events = group.read_events().unwrap_or_default();
        let mut held = held.lock().unwrap();
        if events.is_empty() && held.over {
            return;
        }
        for event in events {
            match held.answers {
                true => allow(group, &event),
                false => held.waiting.push(event),
            }
        }
    }
}

fn allow(group: &Fanotify, event: &FanotifyEvent) {
    if let Some(fd) = event.fd() {
        // Whoever was killed meanwhile needs no answer.
        let _ = group.write_response(FanotifyResponse::new(fd, Response::FAN_ALLOW));
    }
}

fn path(event: &FanotifyEvent) -> PathBuf {
    let fd = event.fd().map_or(-1, |fd| fd.as_raw_fd());
    std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default()
}
