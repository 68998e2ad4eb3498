//! `robustctl inspect`: what the processes of roles do now. `robustctl probe`: whether every role answers, and how fast.
use crate::cli::{InspectArgs, ProbeArgs, Who};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::who;
use crate::inside;
use crate::output::{put, put_json};
use crate::paint::Paint;
use robust_proto::v1;
use robust_shared::wire::InspectWay;

/// Prints what each instance does, as it is found; as JSON all of them at the end.
pub async fn inspect(endpoint: &Endpoint, args: &InspectArgs, json: bool) -> Result<(), CliError> {
    let mut parts = Vec::new();
    for request in requests(&args.who, args.stacks.word()) {
        inside::look(endpoint, request, |part| {
            if json {
                parts.push(part);
                return Ok(());
            }
            put(&(inside::lines(&part).join("\n") + "\n"))
        })
        .await?;
    }
    match json {
        true => put_json(&parts),
        false => Ok(()),
    }
}

/// Prints who answers; an error where one does not.
pub async fn probe(endpoint: &Endpoint, args: &ProbeArgs, json: bool) -> Result<(), CliError> {
    let mut parts = Vec::new();
    for request in requests(&args.who, InspectWay::Probe.word()) {
        inside::look(endpoint, request, |part| {
            parts.push(part);
            Ok(())
        })
        .await?;
    }
    if json {
        put_json(&parts)?;
    } else {
        put(&inside::answered(&parts).render(Paint::stdout()))?;
    }
    let silent = parts.iter().filter(|part| !inside::is_well(part));
    let silent: Vec<String> = silent.map(|part| who(&part.role, part.index)).collect();
    match silent.len() {
        0 => Ok(()),
        n => Err(CliError::Failed(format!(
            "{n} of {} do not answer: {}",
            parts.len(),
            silent.join(", ")
        ))),
    }
}

/// A question for each that is named; one for all where none is.
fn requests(whom: &[Who], what: &str) -> Vec<v1::InspectRequest> {
    let what = what.to_owned();
    if whom.is_empty() {
        return vec![v1::InspectRequest {
            what,
            ..v1::InspectRequest::default()
        }];
    }
    let of = |who: &Who| v1::InspectRequest {
        role: who.role.name().to_owned(),
        index: who.index,
        what: what.clone(),
    };
    whom.iter().map(of).collect()
}
