//! Which deaths are the engine's.
use std::fmt;
use std::time::Duration;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// With an exit code.
    Exit(i32),
    /// By the signal of this number.
    Signal(i32),
    /// Its parent reaped it before anybody else could look.
    Unknown,
}

impl How {
    /// From what `wait` reports in one integer.
    pub(crate) fn from_wait_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Exit((status >> 8) & 0xff),
            signal => Self::Signal(signal),
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "code {code}"),
            Self::Signal(number) => match nix::sys::signal::Signal::try_from(*number) {
                Ok(signal) => f.write_str(signal.as_str()),
                Err(_) => write!(f, "signal {number}"),
            },
            Self::Unknown => f.write_str("how is not known, its parent reaped it"),
        }
    }
}

/// What kind of work a process does for the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What serves requests, or may.
    Engine,
    /// A shell. It may be a wrapper around the engine, so its failure counts.
    Shell,
    /// Compilers and the like: who started one looks at its exit code and goes on.
    Tool,
}

/// What is known of a process that died.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub kind: Kind,
    pub leader: bool,
    pub how: How,
    pub lived: Duration,
    /// Whether the engine is ready by now.
    pub ready: bool,
    /// Whether the process was there when the engine became ready.
    pub was_there: bool,
}

/// Says which deaths in the tree are deaths of the engine. Engines start many processes that end
/// early and on purpose: probes, compilers, shells.
///
/// | | before `ready` | after |
/// | --- | --- | --- |
/// | the leader | counts | counts |
/// | a tool (`gcc`, `ptxas`, `git`, a compile worker, ...) | no | no |
/// | a shell | SIGKILL counts | as any other, but for code 0 and for an end that nobody saw |
/// | any other | SIGKILL counts, and any signal but SIGPIPE after `settle` | counts after `settle`, and before that when it was there at `ready` and ended by a signal, or with another code than 0 after a second |
///
/// SIGKILL counts from the first moment since nothing ends a probe of its own that way, while the
/// system does so when memory runs out. A probe for what the processor can do does die by SIGILL,
/// and the left end of a pipe by SIGPIPE. A command that is over within a second may live at the very moment
/// of `ready`, which makes it no part of the engine; what serves requests was started long before.
#[derive(Clone, Debug)]
pub struct Policy {
    /// A process that lived less than this was a helper of the start.
    pub settle: Duration,
    /// Names of further programs that are tools.
    pub tools: Vec<String>,
    /// A process with one of these in its command line is a tool.
    pub tool_commands: Vec<String>,
    /// Whether descendants that end by themselves, with whatever code, take the engine along.
    pub exits_count: bool,
}

impl Policy {
    /// For a program that starts and ends processes as it goes, as a trainer does with those that load its
    /// data: it sees their exit codes itself. One that is killed or crashes takes it along.
    pub fn of_program() -> Self {
        Self {
            exits_count: false,
            ..Self::default()
        }
    }
}

impl Default for Policy {
    /// Five seconds, and the command lines of Python's and PyTorch's own helpers.
    fn default() -> Self {
        let commands = [
            "multiprocessing.resource_tracker",
            "torch._inductor.compile_worker",
        ];
        Self {
            settle: Duration::from_secs(5),
            tools: Vec::new(),
            tool_commands: commands.map(str::to_owned).to_vec(),
            exits_count: true,
        }
    }
}

/// Who ends by itself before this was a command, even if it lived when the engine became ready.
const COMMAND: Duration = Duration::from_secs(1);

const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "busybox"];

#[rustfmt::skip]
const TOOLS: &[&str] = &[
    "gcc", "g++", "cc", "c++", "cc1", "cc1plus", "as", "ld", "ld.bfd", "ld.gold", "ld.lld",
    "collect2", "lto1", "lto-wrapper", "clang", "clang++", "lld", "ar", "ranlib", "strip",
    "nvcc", "cicc", "ptxas", "nvlink", "fatbinary", "cudafe++", "cuobjdump", "nvdisasm", "hipcc",
    "ninja", "make", "cmake", "ldconfig", "ldd", "lscpu", "lspci", "lsof", "uname", "hostname",
    "which", "git", "nvidia-smi", "rocminfo", "rocm-smi", "amdgpu-arch", "pkg-config", "numactl",
    "ip", "ps", "getconf", "pip", "pip3", "uv", "conda",
];

/// How the kernel cuts the names of cross compilers (`x86_64-linux-gnu-gcc`).
const TOOL_PREFIXES: &[&str] = &["x86_64-linux-gn", "aarch64-linux-g"];

impl Policy {
    pub(crate) fn kind(&self, name: &str, command: &str) -> Kind {
        // gcc-12, clang-17
        let versioned = |c: char| c.is_ascii_digit() || c == '.';
        let plain = name.trim_end_matches(versioned);
        let plain = match plain.strip_suffix('-') {
            Some(plain) if plain.len() + 1 < name.len() => plain,
            _ => name,
        };
        let is_tool = TOOLS.contains(&plain)
            || TOOL_PREFIXES.iter().any(|p| name.starts_with(p))
            || self.tools.iter().any(|tool| tool == name)
            || self.tool_commands.iter().any(|c| command.contains(c));
        match () {
            () if is_tool => Kind::Tool,
            () if SHELLS.contains(&plain) => Kind::Shell,
            () => Kind::Engine,
        }
    }

    /// Whether this death is the engine's.
    pub(crate) fn counts(&self, facts: Facts) -> bool {
        let settled = facts.lived >= self.settle;
        match (facts.kind, facts.how) {
            _ if facts.leader => true,
            (Kind::Tool, _) | (Kind::Shell, How::Exit(0) | How::Unknown) => false,
            (_, How::Exit(_) | How::Unknown) if !self.exits_count => false,
            // How a process is told to end that is not needed any more.
            (_, How::Signal(libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGPIPE))
                if !self.exits_count =>
            {
                false
            }
            (_, How::Exit(0)) if facts.ready => settled,
            (_, How::Exit(_)) if facts.ready && facts.lived < COMMAND => settled,
            _ if facts.ready => facts.was_there || settled,
            (_, How::Signal(libc::SIGKILL)) => true,
            (Kind::Engine, How::Signal(signal)) => settled && signal != libc::SIGPIPE,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use How::{Exit, Signal, Unknown};

    const YOUNG: Duration = Duration::from_millis(4999);
    const OLD: Duration = Duration::from_secs(5);

    fn counts(kind: Kind, how: How, lived: Duration, ready: bool, was_there: bool) -> bool {
        Policy::default().counts(Facts {
            kind,
            leader: false,
            how,
            lived,
            ready,
            was_there,
        })
    }

    #[test]
    fn the_leader_counts_however_it_ends() {
        for kind in [Kind::Engine, Kind::Shell, Kind::Tool] {
            let facts = Facts {
                kind,
                leader: true,
                how: Exit(0),
                lived: Duration::ZERO,
                ready: false,
                was_there: false,
            };
            assert!(Policy::default().counts(facts), "{kind:?}");
        }
    }

    #[test]
    fn before_ready_only_a_signal_counts() {
        let before = |kind, how, lived| counts(kind, how, lived, false, false);
        assert!(before(Kind::Engine, Signal(9), YOUNG));
        assert!(before(Kind::Shell, Signal(9), YOUNG));
        assert!(before(Kind::Engine, Signal(11), OLD));
        for (kind, how, lived) in [
            (Kind::Engine, Exit(1), OLD),
            (Kind::Engine, Exit(0), OLD),
            (Kind::Engine, Unknown, OLD),
            (Kind::Engine, Signal(4), YOUNG),
            (Kind::Engine, Signal(13), OLD),
            (Kind::Shell, Signal(11), OLD),
            (Kind::Tool, Signal(9), OLD),
        ] {
            assert!(!before(kind, how, lived), "{kind:?} {how:?} {lived:?}");
        }
    }

    #[test]
    fn after_ready_those_count_that_were_there_or_have_settled() {
        let after = |kind, how, lived, was_there| counts(kind, how, lived, true, was_there);
        for how in [Exit(0), Exit(1), Signal(9), Unknown] {
            let young = after(Kind::Engine, how, YOUNG, true);
            assert_eq!(young, how != Exit(0), "{how:?}");
            assert!(after(Kind::Engine, how, OLD, false), "{how:?}");
            assert!(!after(Kind::Engine, how, YOUNG, false), "{how:?}");
            assert!(!after(Kind::Tool, how, OLD, true), "{how:?}");
        }
        let brief = Duration::from_millis(999);
        assert!(!after(Kind::Engine, Exit(1), brief, true));
        assert!(after(Kind::Engine, Signal(9), brief, true));
        assert!(after(Kind::Shell, Exit(1), OLD, true));
        assert!(!after(Kind::Shell, Exit(0), OLD, true));
        assert!(!after(Kind::Shell, Unknown, OLD, true));
    }

    #[test]
    fn a_program_sees_itself_how_its_helpers_end_but_for_those_that_are_killed() {
        let policy = Policy::of_program();
        let counts = |leader, how| {
            policy.counts(Facts {
                kind: Kind::Engine,
                leader,
                how,
                lived: OLD,
                ready: true,
                was_there: true,
            })
        };
        for how in [Exit(0), Exit(1), Signal(15), Unknown] {
            assert!(!counts(false, how) && counts(true, how), "{how:?}");
        }
        assert!(counts(false, Signal(9)) && counts(false, Signal(11)));
    }

    #[test]
    fn helpers_are_known_by_name_and_by_command() {
        let policy = Policy {
            tools: vec!["probe".to_owned()],
            ..Policy::default()
        };
        let kind = |name: &str| policy.kind(name, name);
        for tool in ["gcc", "gcc-12", "ld.lld-17", "x86_64-linux-gn", "probe"] {
            assert_eq!(kind(tool), Kind::Tool, "{tool}");
        }
        assert_eq!(kind("bash"), Kind::Shell);
        for engine in ["VLLM::Worker", "python3", "python3.11", "ld-7x", "sleep"] {
            assert_eq!(kind(engine), Kind::Engine, "{engine}");
        }
        let tracker = "python3 -c from multiprocessing.resource_tracker import main;main(6)";
        assert_eq!(policy.kind("python3", tracker), Kind::Tool);
    }

    #[test]
    fn an_end_is_told_in_words() {
        let told = [0x0700, 9, 0x8b, 64].map(|s| How::from_wait_status(s).to_string());
        assert_eq!(told, ["code 7", "SIGKILL", "SIGSEGV", "signal 64"]);
        assert!(Unknown.to_string().starts_with("how is not known"));
    }
}
