//! Options of `token`.
use clap::{Args, Subcommand};
use robust_shared::drill::duration;
use std::time::Duration;

/// What to do with join tokens.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Make one and print it: it makes one machine a node, once, until its time is over
    Create(CreateTokenArgs),
    /// Tokens that are good still, and nodes that have a certificate
    List,
    /// Take a token back, or a node's certificate: it is out at once
    Revoke(RevokeTokenArgs),
}

/// Which token to make.
#[derive(Clone, Debug, Args)]
pub struct CreateTokenArgs {
    /// Make it good for the node of this name alone, whoever has that name now [default: any free name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// How long it is good: 30min, 1h, 7d, at most 30d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub ttl: Duration,
}

/// What to take back.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct RevokeTokenArgs {
    /// The token of this id
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// The certificate of this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}
