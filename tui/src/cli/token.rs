//! Options of `token`.
use clap::{Args, Subcommand};
use robust_shared::drill::duration;
use robust_shared::verbs;
use std::path::PathBuf;
use std::time::Duration;

/// What to do with join tokens.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    #[command(about = verbs::token_create::VERB.about)]
    Create(CreateTokenArgs),
    /// Tokens that make nodes still, nodes that have a certificate, and tokens of persons that were taken back
    List,
    #[command(about = verbs::token_revoke::VERB.about)]
    Revoke(RevokeTokenArgs),
}

/// Which token to make.
#[derive(Clone, Debug, Args)]
pub struct CreateTokenArgs {
    /// Make it good for the node of this name alone, whoever has that name now [default: any free name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Make an operator's own, to be shown with --connect: the audit log names NAME
    #[arg(long, value_name = "NAME", group = "person", conflicts_with = "node")]
    pub operator: Option<String>,
    /// Make a viewer's own, from the file that robustd has as --viewer-token-file
    #[arg(long, value_name = "NAME", group = "person", conflicts_with = "node")]
    pub viewer: Option<String>,
    /// Make the own token of somebody who may break the glass, from robustd's --break-glass-token-file
    #[arg(long, value_name = "NAME", group = "person", conflicts_with = "node")]
    pub break_glass: Option<String>,
    /// The token that a person's is made of, which all of the kind have [default for an operator: STATE/token]
    #[arg(long, value_name = "FILE", requires = "person")]
    pub from: Option<PathBuf>,
    /// How long it is good: 30min, 1h, 7d, at most 30d [default: 1h, a person's 30d]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub ttl: Option<Duration>,
}

/// How long a node's token is good where nothing is said.
pub const TTL_OF_NODE: Duration = Duration::from_secs(3600);
/// How long a person's is, and any at most.
pub const TTL_OF_PERSON: Duration = Duration::from_secs(30 * 24 * 3600);

impl CreateTokenArgs {
    /// The kind and name of the person whose it is to be; none: a machine's.
    pub fn person(&self) -> Option<(&'static str, &str)> {
        let kinds = [
            ("operator", &self.operator),
            ("viewer", &self.viewer),
            ("break-glass", &self.break_glass),
        ];
        let mut named = kinds.into_iter();
        named.find_map(|(kind, name)| Some((kind, name.as_deref()?)))
    }
}

/// What to take back.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct RevokeTokenArgs {
    /// The token of this id; a person's is KIND.NAME.END, what the token begins with
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// The certificate of this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}
