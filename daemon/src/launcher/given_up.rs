//! What a role's process gives up before its program runs, which neither it nor what it starts takes back: by that it
//! is known when it has left parents, session and environment behind.
//!
//! ```text
//!  robustd can gain rights ──────► no_new_privs in the role
//!  robustd cannot (a container) ─► one filter of system calls more than robustd has, which lets all through
//! ```
use std::{fs, io};

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// It gains no rights that a set-user-ID program would add (`no_new_privs`).
    rights: bool,
    /// Filters of its system calls; a kernel before Linux 5.9 does not say how many.
    filters: Option<u32>,
}

impl GivenUp {
    /// Of a process, by its number or `self`; none of one that is gone, or may not be looked at.
    pub fn of(process: &str) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        Self::read(&status)
    }

    fn read(status: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim())
        };
        Some(Self {
            rights: value("NoNewPrivs:")? == "1",
            filters: value("Seccomp_filters:").and_then(|count| count.parse().ok()),
        })
    }

    /// Whether it gave up what another kept, as roles do.
    pub fn is_more_than(self, other: Self) -> bool {
        let filters = self.filters.zip(other.filters);
        match other.rights {
            false => self.rights,
            true => self.rights && filters.is_some_and(|(own, of_other)| own > of_other),
        }
    }
}

/// Gives up what roles do, in a forked child: makes system calls only.
pub fn give_up_now() -> io::Result<()> {
    let marks_nothing = rustix::thread::no_new_privs()?;
    rustix::thread::set_no_new_privs(true)?;
    if marks_nothing {
        // A kernel without filters has none to be counted either: the role is known by its parents and environment.
        let _ = add_filter();
    }
    Ok(())
}

/// One more filter, which lets every system call through. From Linux 5.11 on the kernel remembers for each call that it is let
/// through, and does not run the filter again.
#[allow(unsafe_code)]
fn add_filter() -> io::Result<()> {
    let mut all = [libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: libc::SECCOMP_RET_ALLOW,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: all.as_mut_ptr(),
    };
    // Older kernels would else slow all of the process down, as if the filter were there to confine it.
    let as_before = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the program lives on this stack until the call returns, and the kernel copies it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            as_before,
            &raw const program,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FREE: GivenUp = GivenUp {
        rights: false,
        filters: Some(0),
    };

    #[test]
    fn a_role_is_known_by_what_it_gave_up_beyond_its_daemon() {
        let of = |rights, filters| GivenUp { rights, filters };
        let container = of(true, Some(1));
        for (process, daemon, known) in [
            (of(true, Some(0)), FREE, true),
            (FREE, FREE, false),
            // A shell that is confined, and can gain rights, is no role.
            (of(false, Some(3)), FREE, false),
            (of(true, Some(2)), container, true),
            (container, container, false),
            (FREE, container, false),
            // One that is confined more than the daemon, and can gain rights, is none of its roles.
            (of(false, Some(9)), container, false),
            // An old kernel.
            (of(true, None), of(true, None), false),
        ] {
            assert_eq!(
                process.is_more_than(daemon),
                known,
                "{process:?} {daemon:?}"
            );
        }
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        let own = GivenUp::of("self").unwrap();
        assert!(!own.is_more_than(own));
        let text = "Name:\trobustd\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";
        let read = GivenUp {
            rights: true,
            filters: Some(2),
        };
        assert_eq!(GivenUp::read(text), Some(read));
        assert_eq!(GivenUp::read("Name:\trobustd\n"), None);
    }
}
