//! `--dry-run`: what a command would bring. Nothing is done.
use super::{put, put_json};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use robust_proto::v1::{self, forecast_act::Act};
use tonic::{Code, Status};

/// Prints it; what would be refused is refused here too.
pub async fn run(endpoint: &Endpoint, act: Act, json: bool) -> Result<(), CliError> {
    let act = v1::ForecastAct { act: Some(act) };
    let request = v1::ForecastRequest {
        acts: vec![act],
        leaves: String::new(),
    };
    let mut client = endpoint.connect().await?;
    let answer = async { client.forecast(request).await.map_err(explained) };
    let reply = endpoint.ask(answer).await?;
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

/// A daemon of before there were forecasts does not know the word.
fn explained(status: Status) -> Status {
    match status.code() {
        Code::Unimplemented => Status::failed_precondition(
            "the daemon is of an earlier build, which tells nothing ahead; nothing was done",
        ),
        _ => status,
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

    #[test]
    fn an_older_daemon_is_no_fault_of_the_connection() {
        let older = explained(Status::unimplemented("no such method"));
        assert_eq!(older.code(), Code::FailedPrecondition);
        let other = explained(Status::internal("it broke"));
        assert_eq!(
            (other.code(), other.message()),
            (Code::Internal, "it broke")
        );
    }
}
