//! Faults that a drill asks a rank for, as no signal can bring them about. Off unless the environment
//! names one.

/// `GENERATION/STEP`: the gang of this generation gets a gradient of NaN in this step, so that the
/// next one shows that the step is trained again from sound weights.
const NAN_GRADIENT: &str = "ROBUST_DRILL_NAN";

/// The step whose gradient is to be made NaN in a gang of this generation.
pub fn poisoned_step(generation: u64) -> Option<u64> {
    let asked = std::env::var(NAN_GRADIENT).ok()?;
    let step = poisoned(&asked, generation)?;
    tracing::warn!("{NAN_GRADIENT}={asked}: the gradient of step {step} will be NaN");
    Some(step)
}

fn poisoned(asked: &str, generation: u64) -> Option<u64> {
    let (in_generation, step) = asked.split_once('/')?;
    (in_generation.parse() == Ok(generation)).then(|| step.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::poisoned;

    #[test]
    fn only_the_named_generation_is_struck() {
        assert_eq!(poisoned("1/3", 1), Some(3));
        assert_eq!(poisoned("1/3", 2), None);
        assert_eq!(poisoned("yes", 1), None);
    }
}
