//! Who uses which bytes of a buffer: the borrow rules, by range and at run time (T-6).
use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::BufferError;

/// Ranges in use: any number of readers, or one writer or fetch.
#[derive(Default)]
pub(crate) struct Loans {
    /// Disjoint ranges by their start: end and user.
    exclusive: BTreeMap<usize, (usize, Use)>,
    shared: Vec<Range<usize>>,
}

/// Who holds a range for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Write,
    Fetch,
}

impl Use {
    fn busy(self) -> BufferError {
        let by = match self {
            Use::Write => "a mutable loan",
            Use::Fetch => "a fetch into it",
        };
        BufferError::Busy { by }
    }
}

impl Loans {
    pub fn share(&mut self, range: &Range<usize>) -> Result<(), BufferError> {
        if let Some(by) = self.exclusive_in(range) {
            return Err(by.busy());
        }
        self.shared.push(range.clone());
        Ok(())
    }

    pub fn unshare(&mut self, range: &Range<usize>) {
        if let Some(at) = self.shared.iter().position(|loan| loan == range) {
            self.shared.swap_remove(at);
        }
    }

    pub fn take(&mut self, range: &Range<usize>, user: Use) -> Result<(), BufferError> {
        if let Some(by) = self.exclusive_in(range) {
            return Err(by.busy());
        }
        if self.shared.iter().any(|loan| overlap(loan, range)) {
            let by = "a loan to a reader";
            return Err(BufferError::Busy { by });
        }
        if !range.is_empty() {
            self.exclusive.insert(range.start, (range.end, user));
        }
        Ok(())
    }

    /// Gives back a range taken; empty ones were never held.
    pub fn give_back(&mut self, range: &Range<usize>) {
        if !range.is_empty() {
            self.exclusive.remove(&range.start);
        }
    }

    /// Who has some byte of `range` for itself.
    pub fn exclusive_in(&self, range: &Range<usize>) -> Option<Use> {
        // Disjoint ranges: only the last that starts before the end can reach into it.
        let (_, (end, user)) = self.exclusive.range(..range.end).next_back()?;
        (!range.is_empty() && *end > range.start).then_some(*user)
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end && !a.is_empty() && !b.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Share(Range<usize>),
        Take(Range<usize>),
        End(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = (0..40usize, 0..12usize).prop_map(|(start, len)| start..start + len);
        let step = prop_oneof![
            range.clone().prop_map(Step::Share),
            range.prop_map(Step::Take),
            any::<usize>().prop_map(Step::End),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        /// Against a model that keeps a count for every byte.
        #[test]
        fn a_byte_has_readers_or_one_writer(steps in steps()) {
            let mut loans = Loans::default();
            let mut held: Vec<(Range<usize>, bool)> = Vec::new();
            for step in steps {
                let meets = |range: &Range<usize>, (other, _): &&(Range<usize>, bool)| {
                    range.clone().any(|byte| other.contains(&byte))
                };
                match step {
                    Step::Share(range) => {
                        let free = !held.iter().any(|loan| loan.1 && meets(&range, &loan));
                        prop_assert_eq!(loans.share(&range).is_ok(), free);
                        if free {
                            held.push((range, false));
                        }
                    }
                    Step::Take(range) => {
                        let free = !held.iter().any(|loan| meets(&range, &loan));
                        prop_assert_eq!(loans.take(&range, Use::Fetch).is_ok(), free);
                        if free {
                            held.push((range, true));
                        }
                    }
                    Step::End(_) if held.is_empty() => {}
                    Step::End(at) => {
                        let (range, taken) = held.swap_remove(at % held.len());
                        if taken {
                            loans.give_back(&range);
                        } else {
                            loans.unshare(&range);
                        }
                    }
                }
            }
        }
    }
}
