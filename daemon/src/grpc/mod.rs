//! The daemon's two gRPC services and where they listen.
mod audit;
mod bounded;
mod callers;
mod certified;
mod check;
mod control;
mod forecast;
mod gate;
mod history;
mod inject;
mod inspect;
mod joins;
mod listen;
mod logs;
mod notes;
mod phases;
mod revoked;
mod rights;
mod roles;
mod token;
mod trajectories;
mod words;

pub use callers::Origin;
pub use control::ControlService;
pub use gate::refused_to;
pub use joins::Joins;
pub use listen::{
    ListenError, STREAMS_OF_A_NODE, bind_tcp, bind_unix, for_nodes, reachable, serve_answers,
    serve_control, serve_control_until, serve_nodes, serve_roles, serve_tcp,
};
pub use revoked::Revoked;
pub use rights::Rights;
pub use roles::RoleHostService;
pub use token::{Token, Tokens};

/// Largest message either way. A batch's samples are far below it; a manifest of a 100 GB model in
/// 1 MiB chunks has about 1 MiB.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
