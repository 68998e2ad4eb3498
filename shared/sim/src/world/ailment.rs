//! Ailments: causes that processes die of again and again, each in its own words, and with other numbers
//! each time.
use super::World;
use robust_shared::core::Exit;
use robust_shared::ids::Incarnation;
use serde::{Deserialize, Serialize};

/// What a process dies of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ailment {
    /// It says in a line what it lacks.
    Model,
    /// An exception of Python's that nobody handled.
    Exception,
    /// An exception of C++'s that nobody handled: SIGABRT.
    Abort,
    /// SIGSEGV, without a word.
    Fault,
}

impl Ailment {
    /// All of them.
    pub const ALL: [Ailment; 4] = [
        Ailment::Model,
        Ailment::Exception,
        Ailment::Abort,
        Ailment::Fault,
    ];

    /// How a process ends of it, and what it writes before, with these numbers.
    fn end(self, some: u64) -> (Exit, String) {
        match self {
            Ailment::Model => {
                let line = format!("error: no tensor `lm_head` at 0x{some:x} of step {some}");
                (Exit::Code(1), line)
            }
            Ailment::Exception => {
                let lines = format!(
                    "step {some} begins\nTraceback (most recent call last):\n  \
                     File \"/tmp/tmp{some:x}/train.py\", line {some}, in step\n    take(batch)\n\
                     KeyError: 'prompt'"
                );
                (Exit::Code(1), lines)
            }
            Ailment::Abort => {
                let lines = format!(
                    "terminate called after throwing an instance of 'c10::Error'\n  \
                     what():  [Rank {some}] the collective timed out after {some} ms"
                );
                (Exit::Signal(6), lines)
            }
            Ailment::Fault => (Exit::Signal(11), format!("loss {some}")),
        }
    }
}

impl World {
    /// A process ends of what it has.
    pub(super) fn dies_of(&mut self, life: Incarnation, ailment: Ailment) {
        let some = self.dice.below(1 << 40);
        let (exit, words) = ailment.end(some);
        self.ends_with(life, exit, words);
    }
}
