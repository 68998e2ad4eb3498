//! What is said to a process that waits, with a descriptor beside it.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Room for the word that is answered; a longer one is another word.
const WORD: usize = 16;

/// Why a process that waits was not told, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum NotTold {
    /// It ended, or says something else.
    #[error("it is gone: {0}")]
    Gone(#[source] io::Error),
    /// It has not answered in time.
    #[error("it did not answer within {0:?}")]
    Silent(Duration),
    /// The system does not carry it.
    #[error("it cannot be told: {0}")]
    Untold(#[source] io::Error),
}

/// Says `text` over a socket that keeps messages apart, with a descriptor beside it, and waits for this answer, so long
/// at most.
pub fn hand_over(
    socket: BorrowedFd<'_>,
    text: &[u8],
    beside: BorrowedFd<'_>,
    answer: &[u8],
    within: Duration,
) -> Result<(), NotTold> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let given = [beside];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&given));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(text)], &mut ancillary, flags)
        .map_err(|error| NotTold::Gone(error.into()))?;
    match says(socket, within) {
        Ok(true) => {}
        Ok(false) => return Err(NotTold::Silent(within)),
        Err(error) => return Err(NotTold::Untold(error.into())),
    }
    let mut word = [0u8; WORD];
    match recv(socket, &mut word, RecvFlags::DONTWAIT) {
        Ok((_, read)) if word.get(..read) == Some(answer) => Ok(()),
        Ok(_) => Err(NotTold::Gone(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(NotTold::Gone(error.into())),
    }
}

/// Whether there is something to be read within this time, however many signals come meanwhile.
fn says(socket: BorrowedFd<'_>, within: Duration) -> Result<bool, Errno> {
    let begun = Instant::now();
    let mut ready = [PollFd::new(&socket, PollFlags::IN)];
    loop {
        let left = within.saturating_sub(begun.elapsed());
        let wait = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut ready, Some(&wait)) {
            Err(Errno::INTR) => {}
            answered => return Ok(answered? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, send, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn told(ours: &OwnedFd, within: Duration) -> Result<(), NotTold> {
        hand_over(ours.as_fd(), b"go on", ours.as_fd(), b"taken", within)
    }

    #[test]
    fn who_answers_goes_on_and_who_is_silent_says_something_else_or_is_gone_does_not() {
        let (ours, its) = pair();
        send(&its, b"taken", SendFlags::empty()).unwrap();
        told(&ours, Duration::from_secs(10)).unwrap();
        let mut heard = [0; 16];
        let (_, read) = recv(&its, &mut heard, RecvFlags::empty()).unwrap();
        assert_eq!(&heard[..read], b"go on");
        let silent = told(&ours, Duration::from_millis(1)).unwrap_err();
        assert!(matches!(silent, NotTold::Silent(_)), "{silent}");
        send(&its, b"other", SendFlags::empty()).unwrap();
        let other = told(&ours, Duration::from_secs(10)).unwrap_err();
        assert!(matches!(other, NotTold::Gone(_)), "{other}");
        drop(its);
        let gone = told(&ours, Duration::from_secs(10)).unwrap_err();
        assert!(matches!(gone, NotTold::Gone(_)), "{gone}");
    }
}
