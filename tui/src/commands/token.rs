//! `robustctl token`: what makes nodes of machines, who is one, and tokens of persons.
use crate::cli::{TTL_OF_NODE, TTL_OF_PERSON, TokenCommand};
use crate::endpoint::{Endpoint, read_token};
use crate::error::CliError;
use crate::format::moment_of;
use crate::output::{self, put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use robust_identity::Person;
use robust_proto::v1::{self, revoke_join_request::What};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Carries out what is asked for.
pub async fn run(endpoint: &Endpoint, command: TokenCommand, json: bool) -> Result<(), CliError> {
    if let TokenCommand::Create(args) = &command
        && let Some(named) = args.person()
    {
        let ttl = args.ttl.unwrap_or(TTL_OF_PERSON);
        return of_person(endpoint, args.from.as_deref(), named, ttl, json);
    }
    let mut client = endpoint.connect().await?;
    match command {
        TokenCommand::Create(args) => {
            let request = v1::CreateJoinTokenRequest {
                node: args.node.unwrap_or_default(),
                ttl_s: args.ttl.unwrap_or(TTL_OF_NODE).as_secs(),
            };
            let node = request.node.clone();
            let created = endpoint.ask(client.create_join_token(request)).await?;
            if json {
                return put_json(&created);
            }
            // Beside the token, which may go into a file.
            output::note(&use_of(&node, &created), json);
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
                (id, None) => of_id(id.unwrap_or_default()),
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

/// What is taken back by this id, and what is said of it. Of a whole token only the id goes to the daemon, which logs it.
fn of_id(id: String) -> (What, String) {
    let id = Person::of_token(&id).map_or(id, |person| person.id());
    let words = match Person::of_id(&id) {
        Some(_) => format!(
            "token {id} opens nothing any more: where its holder is connected nothing more is answered; what is \
             followed there goes on until it is closed\n"
        ),
        None => format!("token {id} makes no node any more\n"),
    };
    (What::Token(id), words)
}

/// Makes a person's own token: of the one that all of his kind have, without asking the daemon.
fn of_person(
    endpoint: &Endpoint,
    from: Option<&Path>,
    (kind, name): (&'static str, &str),
    ttl: Duration,
    json: bool,
) -> Result<(), CliError> {
    if ttl.is_zero() || ttl > TTL_OF_PERSON {
        let text =
            "a token is good for more than no time, and for 30d at most; say less with --ttl";
        return Err(CliError::Usage(text.to_owned()));
    }
    let of_operators = || endpoint.state_dir().map(|state| state.join("token"));
    let made_of = match (from, kind) {
        (Some(file), _) => file.to_owned(),
        (None, "operator") => of_operators().ok_or_else(|| {
            let text = "say with --from which token it is made of: the daemon's STATE/token";
            CliError::Usage(text.to_owned())
        })?,
        (None, _) => {
            let text = format!(
                "say with --from which token it is made of: the one that robustd has as --{kind}-token-file"
            );
            return Err(CliError::Usage(text));
        }
    };
    let of_all = read_token(&made_of)?;
    if let Some(person) = Person::of_token(&of_all) {
        let text = format!(
            "{} is the own token of {}, of which no other is made; name the daemon's with --from",
            made_of.display(),
            person.name()
        );
        return Err(CliError::Usage(text));
    }
    let until = SystemTime::now() + ttl;
    let until_s = until
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let person = Person::new(kind, name, until_s).map_err(|e| CliError::Usage(e.to_string()))?;
    let token = person.token(&of_all);
    let expires_ms = until_s * 1000;
    if json {
        return put_json(&serde_json::json!({
            "kind": kind, "name": name, "id": person.id(), "token": token, "expires_ms": expires_ms,
        }));
    }
    let text = format!(
        "{name}'s own until {}; in a file of mode 0600 there:\n  robustctl --connect ADDRESS-OF-LISTEN \
         --token-file FILE status\ntaken back by `robustctl token revoke {}`",
        moment_of(expires_ms),
        person.id()
    );
    output::note(&text, json);
    put(&format!("{token}\n"))
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
    let persons = all.revoked.iter();
    let persons: String = persons.map(|id| format!("taken back: {id}\n")).collect();
    match persons.is_empty() {
        true => of_nodes(all),
        false => format!("{}\n{persons}", of_nodes(all)),
    }
}

fn of_nodes(all: &v1::ListJoinsReply) -> String {
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
