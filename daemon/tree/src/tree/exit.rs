//! How a process ended that its own parent reaped.
//!
//! Linux keeps it with the pidfd since 6.15 (`PIDFD_GET_INFO` with `PIDFD_INFO_EXIT`, linux/pidfd.h). An
//! engine's leader may reap a killed worker before anybody else has looked, and "by SIGKILL" is what its
//! user wants to know.
use crate::policy::How;
use rustix::fd::{AsRawFd, OwnedFd};

/// `struct pidfd_info` as of 6.13, which later kernels still take.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    wait_status: i32,
}

/// The kernel sets it in the mask that it gives back when it knows the end.
const EXIT: u64 = 1 << 3;
/// `_IOWR(0xFF, 11, struct pidfd_info)`.
const GET_INFO: libc::c_ulong =
    (3 << 30) | ((size_of::<Info>() as libc::c_ulong) << 16) | (0xFF << 8) | 11;

/// How it ended; none on an older kernel, and for one that was not reaped yet.
#[allow(unsafe_code)]
pub fn told(pidfd: &OwnedFd) -> Option<How> {
    let mut info = Info {
        mask: EXIT,
        ..Info::default()
    };
    // SAFETY: the kernel reads and writes no more than the length that the request says, which is the
    // structure's own, and the descriptor is open.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO, &raw mut info) };
    (result == 0 && info.mask & EXIT != 0).then(|| How::from_wait_status(info.wait_status))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::child::raw;
    use rustix::process::{PidfdFlags, pidfd_open};

    #[test]
    fn the_end_of_a_reaped_process_is_known_where_the_kernel_keeps_it() {
        assert_eq!(size_of::<Info>(), 64);
        for (script, how) in [("exit 3", How::Exit(3)), ("kill -9 $$", How::Signal(9))] {
            let mut child = std::process::Command::new("sh")
                .args(["-c", script])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let pidfd = pidfd_open(raw(child.id()).unwrap(), PidfdFlags::empty()).unwrap();
            child.wait().unwrap();
            // Kernels before 6.15 do not say.
            let told = told(&pidfd);
            assert!(told.is_none() || told == Some(how), "{told:?}");
        }
    }
}
