//! From facts to verdicts. Nothing here looks at the machine.
mod commands;
mod devices;
mod groups;
mod machine;
mod network;
mod programs;
mod roles;
#[cfg(test)]
mod tests;

use super::check::Check;
use super::facts::Facts;

/// Every check, in the order in which they are shown.
pub fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = programs::all(facts);
    checks.extend(commands::all(facts));
    checks.extend(roles::all(facts));
    checks.extend(devices::all(facts));
    checks.extend(machine::all(facts));
    checks.extend(network::all(facts));
    checks
}

/// For a fact that nobody asked for.
const NOT_ASKED: &str = "not looked at";
