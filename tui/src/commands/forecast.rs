//! `--dry-run`: what a command would bring. Nothing is done.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::output::{put, put_json};
use robust_proto::v1::{self, forecast_act::Act};

/// Prints it; what would be refused is refused here too.
pub async fn run(endpoint: &Endpoint, act: Act, json: bool) -> Result<(), CliError> {
    let act = v1::ForecastAct { act: Some(act) };
    let request = v1::ForecastRequest {
        acts: vec![act],
        leaves: String::new(),
    };
    let mut client = endpoint.connect().await?;
    let reply = endpoint.ask(client.forecast(request)).await?;
    if json {
        put_json(&reply)?;
    }
    if !reply.refused.is_empty() {
        return Err(CliError::Refused(reply.refused));
    }
    match json {
        true => Ok(()),
        false => put(&text(&reply)),
    }
}

fn text(reply: &v1::ForecastReply) -> String {
    let lines = reply.lines.iter().map(|line| format!("{line}\n"));
    lines.chain(["nothing was done\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_come_one_below_the_other_and_say_that_nothing_was_done() {
        let reply = v1::ForecastReply {
            lines: vec!["new processes: rollout-1".to_owned()],
            ..Default::default()
        };
        let expected = "new processes: rollout-1\nnothing was done\n";
        assert_eq!(text(&reply), expected);
    }
}
