//! A process that has done all of a start that needs no identity, and waits until the daemon makes it a life.
//!
//! Its standard input is a socket to the daemon; what is said over it is in [`robust_shared::spare`]. Until then it has
//! no token, no certificate, no rank and no link, and it ends with the daemon that started it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};
use robust_proto::INCARNATION_VARIABLE;
use robust_shared::spare::{Handed, MOST_BYTES, READY, TAKEN};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Signal, getpid, kill_process};

/// What the environment of the life has that this process was not started with.
static HANDED: OnceLock<BTreeMap<String, String>> = OnceLock::new();
/// Whether this process has not come to [`wait`] yet, which sees the end of the daemon by itself.
static LOADING: AtomicBool = AtomicBool::new(true);

/// A variable of this life's environment.
pub fn variable(name: &str) -> Option<String> {
    let handed = HANDED.get().and_then(|of| of.get(name)).cloned();
    handed.or_else(|| std::env::var(name).ok())
}

/// Whether this process was a spare before it was a life.
pub fn was_one() -> bool {
    HANDED.get().is_some()
}

/// From here until [`wait`] this process ends with its daemon, however long it is busy: a thread of its own waits for
/// the end of the socket.
pub fn end_with_daemon() -> io::Result<()> {
    let daemon = io::stdin().as_fd().try_clone_to_owned()?;
    let watching = move || {
        // Nothing is asked for: that the other end is gone the kernel says in any case. Of a life it goes when the daemon
        // has the answer.
        let mut end = [PollFd::new(&daemon, PollFlags::empty())];
        let seen = retry_on_intr(|| poll(&mut end, None));
        if seen.is_ok() && LOADING.load(Ordering::SeqCst) {
            eprintln!("the daemon ended while this spare was loading");
            // Nothing is to be put in order, and handlers of libraries that are being loaded are not to run.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    };
    let thread = std::thread::Builder::new().name("daemon's end".to_owned());
    thread.spawn(watching).map(drop)
}

/// Says that all is done that can be, and waits to become a life: its command line. None where the daemon ended, and
/// the process is to end with it.
pub fn wait() -> io::Result<Option<Vec<String>>> {
    match say_ready() {
        true => become_life(),
        false => Ok(None),
    }
}

/// Says that all is done that can be. False where the daemon ended.
pub fn say_ready() -> bool {
    LOADING.store(false, Ordering::SeqCst);
    send(io::stdin(), READY, SendFlags::NOSIGNAL).is_ok()
}

/// Waits to become a life, as [`wait`] does after its word: standard input can be read from as soon as there is an answer.
pub fn become_life() -> io::Result<Option<Vec<String>>> {
    let stdin = io::stdin();
    let daemon = stdin.as_fd();
    let Some((handed, log)) = receive(daemon)? else {
        return Ok(None);
    };
    dup2_stdout(&log)?;
    dup2_stderr(&log)?;
    let Handed { argv, env } = handed;
    if let Some((_, number)) = env.iter().find(|(name, _)| name == INCARNATION_VARIABLE) {
        show_number(number);
    }
    // It is the first: nothing else sets it.
    let _ = HANDED.set(env.into_iter().collect());
    send(daemon, TAKEN, SendFlags::NOSIGNAL)?;
    // A life reads from nobody, as any other.
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(Some(argv))
}

fn receive(daemon: BorrowedFd<'_>) -> io::Result<Option<(Handed, OwnedFd)>> {
    let mut bytes = vec![0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let read = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(daemon, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            read => break read?.bytes,
        }
    };
    if read == 0 {
        return Ok(None);
    }
    let log = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    let log = log.ok_or_else(|| io::Error::other("a life without a log was handed over"))?;
    let handed = serde_json::from_slice(&bytes[..read])?;
    Ok(Some((handed, log)))
}

/// Writes the number of this life over the one that `/proc/PID/environ` shows: by that a later daemon that lost its
/// database knows which lives there were.
fn show_number(number: &str) {
    let Ok(name) = std::ffi::CString::new(INCARNATION_VARIABLE) else {
        return;
    };
    // SAFETY: the name ends with a zero, and so does what is found, which lies where the kernel laid this process's
    // environment: nothing here sets this variable. As many bytes are written as are there, digits in the place of
    // digits, so that whoever reads it meanwhile reads a number.
    #[allow(unsafe_code)]
    unsafe {
        let shown = nix::libc::getenv(name.as_ptr());
        if shown.is_null() {
            return;
        }
        let room = nix::libc::strlen(shown);
        let digits = format!("{number:0>room$}");
        if digits.len() == room {
            std::ptr::copy_nonoverlapping(digits.as_ptr(), shown.cast::<u8>(), room);
        }
    }
}
