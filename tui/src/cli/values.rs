//! How values of the command line are read.
use clap::builder::{PossibleValuesParser, TypedValueParser};
use robust_shared::ids::Role;

/// A role by name; clap offers the nearest valid name for a wrong one.
pub(super) fn role() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::name))
        .try_map(|name| name.parse::<Role>().map_err(|e| e.to_string()))
}

/// A time in seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.05..=86_400.0).contains(&s) => Ok(s),
        Ok(_) => Err("must lie between 0.05 and 86400 seconds".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}
