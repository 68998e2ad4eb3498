//! `robustctl ca`: the authority that certifies nodes and roles.
use super::ca_site;
use crate::cli::CaCommand;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::moment_of;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use robust_proto::v1;
use robust_shared::wire::{CertifiedKind, RotationStage};

/// Carries out what is asked for.
pub async fn run(endpoint: &Endpoint, command: CaCommand, json: bool) -> Result<(), CliError> {
    let reply = match command {
        // These ask no daemon.
        CaCommand::Init(args) => return ca_site::init(&args, json),
        CaCommand::Issue(args) => return ca_site::issue(&args, json),
        CaCommand::Rotate(args) => {
            let request = v1::RotateAuthorityRequest { now: args.now };
            let mut client = endpoint.connect().await?;
            endpoint.ask(client.rotate_authority(request)).await?
        }
        CaCommand::Show => {
            let request = v1::ShowAuthorityRequest {};
            let mut client = endpoint.connect().await?;
            endpoint.ask(client.show_authority(request)).await?
        }
    };
    match json {
        true => put_json(&reply),
        false => put(&text(&reply)),
    }
}

fn text(reply: &v1::AuthorityReply) -> String {
    let waited = reply.certified.iter().filter(|c| c.waited_for).count();
    let in_force = match (reply.stage.as_str(), reply.stage()) {
        ("", _) => format!("authority {} is in force, alone\n", reply.name),
        (_, stage) => {
            let what = match stage {
                Some(RotationStage::Trusting) => "roles learn to believe both",
                _ => "all get a certificate by it",
            };
            format!(
                "authority {} is in force, and {} is taken too: {what}, {waited} waited for\n",
                reply.name, reply.before
            )
        }
    };
    if reply.certified.is_empty() {
        return format!("{in_force}nobody has a certificate\n");
    }
    let mut table = Table::new(&["WHO", "BY", "UNTIL", "NOW"]);
    for one in &reply.certified {
        let who = match one.kind() {
            Some(CertifiedKind::Node) => format!("node {}", one.name),
            _ => format!("{} #{}", one.name, one.incarnation),
        };
        let by = match one.authority.as_str() {
            "" => "unknown".to_owned(),
            by => by.to_owned(),
        };
        let until = match one.until_ms {
            0 => "-".to_owned(),
            until_ms => moment_of(until_ms),
        };
        let now = match (one.waited_for, one.here) {
            (true, true) => "waited for",
            (true, false) => "waited for, away",
            (false, true) => "here",
            (false, false) => "away",
        };
        table.row([who, by, until, now.to_owned()]);
    }
    format!("{in_force}\n{}", table.render(Paint::stdout()))
}
