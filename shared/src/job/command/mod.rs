//! Commands of the user's own in a job file: their placeholders, what they must be, and in which
//! order services start.
mod agent;
mod check;
mod hybrid;
mod order;
mod placeholder;
mod plugin;
mod template;
mod trainer;

pub use order::ServiceTies;
pub(in crate::job) use placeholder::is_variable;
pub use placeholder::{Placeholder, Scope};
pub use template::{Missing, Part, Template, TemplateError};
