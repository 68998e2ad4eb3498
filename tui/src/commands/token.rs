//! `robustctl token`: what makes nodes of machines, and who is one.
use super::{put, put_json};
use crate::cli::TokenCommand;
use crate::endpoint::Endpoint;
use crate::error::{self, CliError};
use crate::format::moment_of;
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1::{self, revoke_join_request::What};

/// Carries out what is asked for.
pub async fn run(endpoint: &Endpoint, command: TokenCommand, json: bool) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    match command {
        TokenCommand::Create(args) => {
            let request = v1::CreateJoinTokenRequest {
                node: args.node.unwrap_or_default(),
                ttl_s: args.ttl.as_secs(),
            };
            let node = request.node.clone();
            let created = endpoint.ask(client.create_join_token(request)).await?;
            if json {
                return put_json(&created);
            }
            // Beside the token, which may go into a file.
            error::note(&use_of(&node, &created), json);
            put(&format!("{}\n", created.token))
        }
        TokenCommand::List => {
            let request = v1::ListJoinsRequest {};
            let all = endpoint.ask(client.list_joins(request)).await?;
            match json {
                true => put_json(&all),
                false => put(&list(&all)),
            }
        }
        TokenCommand::Revoke(args) => {
            let (what, words) = match (args.id, args.node) {
                (_, Some(node)) => {
                    let words = format!(
                        "node {node} is out: its certificate opens nothing any more, and its roles count as lost; \
                         `robustctl token create --node {node}` lets it in again\n"
                    );
                    (What::Node(node), words)
                }
                (id, None) => {
                    let id = id.unwrap_or_default();
                    let words = format!("token {id} makes no node any more\n");
                    (What::Token(id), words)
                }
            };
            let request = v1::RevokeJoinRequest { what: Some(what) };
            let reply = endpoint.ask(client.revoke_join(request)).await?;
            match json {
                true => put_json(&reply),
                false => put(&words),
            }
        }
    }
}

fn use_of(node: &str, created: &v1::CreateJoinTokenReply) -> String {
    let (name, whom) = match node {
        "" => ("NAME", "one machine".to_owned()),
        node => (node, format!("one machine, as node {node}")),
    };
    format!(
        "token {} is good for {whom}, until {}; in a file of mode 0600 there:\n  \
         robustd --join ADDRESS-OF-LISTEN-NODES --name {name} --token-file FILE",
        created.id,
        moment_of(created.expires_ms)
    )
}

fn list(all: &v1::ListJoinsReply) -> String {
    let tokens = match all.tokens.is_empty() {
        true => "no join token is good now\n".to_owned(),
        false => {
            let mut table = Table::new(&["TOKEN", "FOR", "UNTIL", "USED BY"]);
            for token in &all.tokens {
                let or = |text: &str, none: &str| match text {
                    "" => none.to_owned(),
                    text => text.to_owned(),
                };
                table.row([
                    token.id.clone(),
                    or(&token.node, "any"),
                    moment_of(token.expires_ms),
                    or(&token.used_by, "-"),
                ]);
            }
            table.render(Paint::stdout())
        }
    };
    if all.nodes.is_empty() {
        return format!("{tokens}no node has a certificate\n");
    }
    let mut table = Table::new(&["NODE", "SINCE", "CERTIFICATE", "UNTIL", "NOW"]);
    for node in &all.nodes {
        let now = if node.joined { "joined" } else { "away" };
        table.row([
            node.name.clone(),
            moment_of(node.since_ms),
            node.fingerprint.chars().take(16).collect(),
            match node.until_ms {
                0 => "-".to_owned(),
                until_ms => moment_of(until_ms),
            },
            now.to_owned(),
        ]);
    }
    format!("{tokens}\n{}", table.render(Paint::stdout()))
}
