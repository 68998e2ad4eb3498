//! Where a checkpoint is in the store.
use object_store::path::Path as Key;
use robust_shared::ids::{Generation, Step};
use std::fmt;

/// The manifest's name beside the shards.
pub(crate) const MANIFEST: &str = robust_ckpt::manifest::FILE;

/// How the name of an object ends that pins a place.
const PIN: &str = ".pinned";

/// A checkpoint's place. The order is that of a run's history: a later gang's are newer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The life of the job.
    pub run: String,
    /// The gang that made it.
    pub generation: Generation,
    /// The step.
    pub step: Step,
}

impl Place {
    pub(crate) fn key(&self, root: &Key) -> Key {
        root.clone()
            .join(self.run.as_str())
            .join(format!("step-{}.g{}", self.step.0, self.generation.0))
    }

    /// The object that says that an operator wants it to stay. Beside the folder: one look at the run finds all.
    pub(crate) fn pin(&self, root: &Key) -> Key {
        let name = format!("step-{}.g{}{PIN}", self.step.0, self.generation.0);
        root.clone().join(self.run.as_str()).join(name)
    }

    /// The place that such an object's name says, in a run.
    pub(crate) fn of_pin(run: &str, name: &str) -> Option<Self> {
        Self::parse(run, name.strip_suffix(PIN)?)
    }

    /// The place that a folder's name says, in a run.
    pub(crate) fn parse(run: &str, folder: &str) -> Option<Self> {
        let (step, generation) = folder.strip_prefix("step-")?.split_once(".g")?;
        Some(Self {
            run: run.to_owned(),
            generation: Generation(generation.parse().ok()?),
            step: Step(step.parse().ok()?),
        })
    }

    /// Whether it is history that did not happen once `other` is there: a later gang of the same run
    /// began before it.
    pub fn is_undone_by(&self, other: &Self) -> bool {
        self.run == other.run && self.generation < other.generation && self.step >= other.step
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            run,
            generation,
            step,
        } = self;
        write!(f, "step {step} of {generation} in run {run}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(generation: u64, step: u64) -> Place {
        Place {
            run: "r".to_owned(),
            generation: Generation(generation),
            step: Step(step),
        }
    }

    #[test]
    fn a_place_is_read_back_from_its_key() {
        let key = place(3, 70).key(&Key::from("a/b"));
        assert_eq!(key.as_ref(), "a/b/r/step-70.g3");
        assert_eq!(Place::parse("r", "step-70.g3"), Some(place(3, 70)));
        let pin = place(3, 70).pin(&Key::from("a/b"));
        assert_eq!(pin.as_ref(), "a/b/r/step-70.g3.pinned");
        assert_eq!(Place::of_pin("r", "step-70.g3.pinned"), Some(place(3, 70)));
        assert_eq!(Place::of_pin("r", "step-70.g3"), None);
        for other in [
            "step-70",
            "step-70.g3.pinned",
            "step-x.g3",
            "step-1.gx",
            "other",
            "step-1.g",
        ] {
            assert_eq!(Place::parse("r", other), None, "{other}");
        }
    }

    #[test]
    fn only_what_a_later_gang_did_again_is_undone() {
        assert!(place(1, 7).is_undone_by(&place(2, 7)));
        assert!(place(1, 8).is_undone_by(&place(2, 7)));
        assert!(!place(1, 6).is_undone_by(&place(2, 7)));
        assert!(!place(2, 8).is_undone_by(&place(2, 7)));
        assert!(!place(2, 8).is_undone_by(&place(1, 7)));
        let other_run = Place {
            run: "s".to_owned(),
            ..place(2, 1)
        };
        assert!(!place(1, 7).is_undone_by(&other_run));
    }
}
