//! `robustd --join`: this daemon is a node of another one's job.
use super::args::{Args, ExitCode};
use super::checks::find_worker;
use super::failure::Failure;
use super::sampled::Sampled;
use crate::node::{self, NodeConfig, NodeEnd, NodeParts};
use crate::nodes::{JoinToken, JoinTokenError, OutsideFiles};
use crate::state::StateDir;

/// Runs the node from the checks to its end.
pub(super) async fn run(args: &Args, leader: &str) -> Result<ExitCode, Failure> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    if args.certificate.is_some() && args.token_file.is_some() {
        return Err(Failure::TwoProofs);
    }
    let outside = args.outside();
    let outside = outside.map(|paths| OutsideFiles::of_node(paths, args.join.name.as_deref()));
    let outside = outside.transpose()?;
    // A certificate says it better than the host, which may have a name for this pod alone.
    let host = outside
        .as_ref()
        .map_or(host, |files| files.name().to_owned());
    let config = NodeConfig::new(&args.join, leader, host, args.advertise)?;
    let worker = find_worker(args)?;
    let state = StateDir::make(&args.state_dir()?)?;
    let token = args.token_file.as_deref().map(JoinToken::read);
    let token = match token {
        // It is used up, and may be gone.
        Some(Err(error @ JoinTokenError::Unreadable { .. })) if state.node_key().exists() => {
            tracing::info!("{error}; going on with the certificate that there is");
            None
        }
        token => token.transpose()?,
    };
    tracing::info!(
        "joining {leader} as {}, state in {}",
        config.name,
        state.root().display()
    );
    let start = |source| Failure::Start {
        what: "the telemetry",
        source,
    };
    let sampled = Sampled::new(args);
    let seen_devices = sampled.seen_devices();
    let sources = sampled.start(&state).map_err(start)?;
    let parts = NodeParts {
        config,
        token,
        outside,
        state,
        worker,
        sources,
        seen_devices,
    };
    Ok(match node::run(parts).await? {
        NodeEnd::JobOver => ExitCode::Completed,
        NodeEnd::Interrupted => ExitCode::Interrupted,
        NodeEnd::Terminated => ExitCode::Terminated,
    })
}
