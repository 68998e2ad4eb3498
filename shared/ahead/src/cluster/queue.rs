//! What is to happen, in the order of time; at the same instant, in the order it was planned.
use robust_shared::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of things to happen.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    order: BinaryHeap<Reverse<(Time, u64, usize)>>,
    things: Vec<Option<T>>,
    free: Vec<usize>,
    planned: u64,
}

impl<T> Queue<T> {
    pub fn new() -> Self {
        Self {
            order: BinaryHeap::new(),
            things: Vec::new(),
            free: Vec::new(),
            planned: 0,
        }
    }

    /// Plans something.
    pub fn push(&mut self, at: Time, thing: T) {
        let place = match self.free.pop() {
            Some(place) => {
                self.things[place] = Some(thing);
                place
            }
            None => {
                self.things.push(Some(thing));
                self.things.len() - 1
            }
        };
        self.planned += 1;
        self.order.push(Reverse((at, self.planned, place)));
    }

    /// When the next happens.
    pub fn next_at(&self) -> Option<Time> {
        self.order.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next, with its time.
    pub fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse((at, _, place)) = self.order.pop()?;
        self.free.push(place);
        let thing = self.things.get_mut(place)?.take()?;
        Some((at, thing))
    }
}
