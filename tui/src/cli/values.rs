//! How values of the command line are read.
use clap::builder::{PossibleValuesParser, TypedValueParser};
use robust_shared::ids::Role;
use robust_shared::nearest::nearest;
use std::fmt;

/// A role by name; clap offers the nearest valid name for a wrong one.
pub(super) fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::name))
        .try_map(|name| name.parse::<Role>().map_err(|e| e.to_string()))
}

/// A time in seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.05..=86_400.0).contains(&s) => Ok(s),
        Ok(_) => Err("must lie between 0.05 and 86400 seconds".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// A role, or one instance of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The role.
    pub role: Role,
    /// Which of them; all, where none is given.
    pub index: Option<u32>,
}

impl Who {
    /// Whether it is one of those meant.
    pub fn is(&self, role: &str, index: u32) -> bool {
        self.role.name() == role && self.index.is_none_or(|i| i == index)
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}-{index}", self.role),
            None => write!(f, "{}", self.role),
        }
    }
}

/// `rollout` or `rollout-1`; a wrong role is answered with the nearest.
pub(super) fn who(text: &str) -> Result<Who, String> {
    let (name, index) = match text.rsplit_once('-') {
        Some((name, index)) => {
            let number = index
                .parse()
                .map_err(|_| format!("`{index}` is no number; write an instance as `rollout-1`"))?;
            (name, Some(number))
        }
        None => (text, None),
    };
    let role = name.parse::<Role>().map_err(|e| {
        let near = nearest(name, Role::ALL.map(Role::name));
        near.map_or(e.to_string(), |near| format!("{e}; did you mean `{near}`?"))
    })?;
    Ok(Who { role, index })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_read_and_a_typo_is_answered_with_what_was_meant() {
        let role = Role::Rollout;
        let index = Some(12);
        assert_eq!(who("rollout-12"), Ok(Who { role, index }));
        assert_eq!(who("rollout"), Ok(Who { role, index: None }));
        let said = who("trianer-0").err().unwrap_or_default();
        assert!(said.ends_with("did you mean `trainer`?"), "{said}");
        let said = who("rollout-x").err().unwrap_or_default();
        assert!(said.starts_with("`x` is no number"), "{said}");
    }
}
