//! What was found of each process when a hang was looked into, before anything of it was killed.
use crate::ids::{Incarnation, InstanceId, Step};
use crate::phase::Phase;
use crate::wire::Word as _;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the operating system says that a process is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It computes, or waits as any process does (`R`, `S`, `I`).
    #[default]
    Lives,
    /// It was stopped by a signal, or by a debugger (`T`, `t`).
    Stopped,
    /// It waits in the kernel and no signal reaches it (`D`): a disk, a network file system, a driver.
    InKernel,
    /// It ended (`Z`, `X`), or is not there any more.
    Dead,
}

crate::wire::named! {
    ProcessState:
    /// The word used in the protocol and in JSON.
    word {
        Lives = "lives",
        Stopped = "stopped",
        InKernel = "in_kernel",
        Dead = "dead",
    }
}

impl ProcessState {
    /// By the letter in `/proc/PID/stat`.
    pub fn from_letter(letter: char) -> Self {
        match letter {
            'T' | 't' => ProcessState::Stopped,
            'D' => ProcessState::InKernel,
            'Z' | 'X' | 'x' => ProcessState::Dead,
            _ => ProcessState::Lives,
        }
    }

    /// The state of this word; a node of another version may know others, which say nothing.
    pub fn from_word(word: &str) -> Self {
        Self::known(word).unwrap_or_default()
    }
}

/// What was seen of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// What the operating system says of it.
    pub state: ProcessState,
    /// The functions that its busiest thread is in, the innermost first, without addresses and lines; one
    /// of Python with its file, as in `next_batch (data.py)`. Empty where no debugger showed them.
    #[serde(default)]
    pub frames: Vec<String>,
}

/// Frames that are kept where none of them says where a process is.
const NATIVE_KEPT: usize = 3;
/// Frames that are kept of those that do.
const TELLING_KEPT: usize = 8;

impl Seen {
    /// The same with those of its frames that say where it is: what is kept of many ranks is small.
    pub fn telling(mut self) -> Self {
        let tells = |frame: &String| collective(frame).is_some() || is_python(frame);
        match self.frames.iter().any(tells) {
            true => {
                self.frames.retain(tells);
                self.frames.truncate(TELLING_KEPT);
            }
            false => self.frames.truncate(NATIVE_KEPT),
        }
        self
    }
}

fn is_python(frame: &str) -> bool {
    frame.ends_with(".py)")
}

/// What a process answered when its evidence was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing yet.
    Awaited,
    /// It was looked at.
    Seen(Seen),
    /// Nothing came in the time that there was.
    Late,
    /// Nobody waited for it any longer: the hang came to its end first.
    Unheard,
}

/// What is known of one process at the time of a hang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Testimony {
    /// Whose.
    pub who: InstanceId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// The name of the node where it runs.
    pub node: String,
    /// What it said last that it is doing.
    pub phase: Phase,
    /// The step it works on.
    pub step: Step,
    /// What was found.
    pub answer: Answer,
    /// Stacks and states, until they are put together in the incident's evidence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl Testimony {
    /// What was seen of it, if it was.
    pub fn seen(&self) -> Option<&Seen> {
        match &self.answer {
            Answer::Seen(seen) => Some(seen),
            Answer::Awaited | Answer::Late | Answer::Unheard => None,
        }
    }

    /// What the operating system says of it, if it was looked at.
    pub fn state(&self) -> Option<ProcessState> {
        self.seen().map(|seen| seen.state)
    }

    /// The exchange among ranks that it waits in, by the functions it is in.
    pub fn collective(&self) -> Option<&'static str> {
        let frames = self.seen()?.frames.iter();
        frames.rev().find_map(|frame| collective(frame))
    }

    /// Where it is, as far as that can be compared with where its peers are. Of native code only an
    /// exchange counts: in what else it is at one moment two ranks differ that do the same.
    pub fn place(&self) -> String {
        let at = match self.step {
            Step(0) => self.phase.to_string(),
            step => format!("{} of step {step}", self.phase),
        };
        let frames = self.seen().into_iter().flat_map(|seen| &seen.frames);
        let python = frames.map(String::as_str).find(|f| is_python(f));
        match self.collective().or(python) {
            Some(inner) => format!("{inner}, {at}"),
            None => at,
        }
    }
}

impl fmt::Display for Testimony {
    /// One line: who, how it is, and where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match &self.answer {
            Answer::Seen(seen) => match seen.state {
                ProcessState::Lives => "lives",
                ProcessState::Stopped => "is stopped",
                ProcessState::InKernel => "waits in the kernel",
                ProcessState::Dead => "is dead",
            },
            Answer::Awaited | Answer::Unheard => "was not waited for",
            Answer::Late => "gave no evidence in time",
        };
        write!(f, "{} {how}: {}", self.who, self.place())
    }
}

/// The exchanges among ranks whose names libraries share, as their functions are called without `_` and
/// in small letters. That of the built-in trainer is a module of its own.
const COLLECTIVES: [(&str, &str); 12] = [
    ("allreduce", "all_reduce"),
    ("allreducecoalesced", "all_reduce"),
    ("allgather", "all_gather"),
    ("allgatherbase", "all_gather"),
    ("allgatherintotensor", "all_gather"),
    ("allgatherobject", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("reducescatterbase", "reduce_scatter"),
    ("reducescattertensor", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("barrier", "barrier"),
    ("monitoredbarrier", "barrier"),
];

/// The exchange among ranks that this function is a part of. Broadcasts are none: tensors are broadcast
/// in every program.
fn collective(frame: &str) -> Option<&'static str> {
    if frame.contains("::exchange::") {
        return Some("exchange");
    }
    let called = frame.split(" (").next().unwrap_or(frame);
    let name = called.rsplit(['.', ':']).next().unwrap_or(called);
    let name = name.replace('_', "").to_ascii_lowercase();
    let name = name.trim_start_matches('p');
    let name = name.strip_prefix("nccl").unwrap_or(name);
    let known = COLLECTIVES.iter().find(|(called, _)| *called == name);
    known.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_among_ranks_is_known_by_its_name_whoever_s_library_it_is() {
        let of = |frames: &[(&str, Option<&str>)]| {
            for (frame, expected) in frames {
                assert_eq!(collective(frame), *expected, "{frame}");
            }
        };
        of(&[
            ("all_reduce", Some("all_reduce")),
            ("ncclAllReduce", Some("all_reduce")),
            ("pncclAllReduce", Some("all_reduce")),
            (
                "c10d::ProcessGroupNCCL::_allgather_base",
                Some("all_gather"),
            ),
            ("torch.distributed.barrier", Some("barrier")),
            ("all_reduce (distributed_c10d.py)", Some("all_reduce")),
            (
                "robust_worker::trainer::exchange::Exchange::sum",
                Some("exchange"),
            ),
            ("broadcast_tensors", None),
            ("next_batch", None),
            ("compare_exchange", None),
        ]);
    }

    #[test]
    fn of_many_frames_those_are_kept_that_say_where_a_process_is() {
        let kept = |frames: &[&str]| {
            let frames = frames.iter().map(|f| (*f).to_owned()).collect();
            let seen = Seen {
                frames,
                ..Seen::default()
            };
            seen.telling().frames
        };
        let native = ["a", "b", "c", "d"];
        assert_eq!(kept(&native), ["a", "b", "c"]);
        let mixed = [&native[..], &["ncclAllReduce", "e", "step (train.py)"]].concat();
        assert_eq!(kept(&mixed), ["ncclAllReduce", "step (train.py)"]);
    }
}
