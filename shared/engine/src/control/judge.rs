//! What a reply to an order means.

use serde_json::Value;

use crate::dialect::Dialect;
use crate::error::Refused;
use crate::request::Request;
use crate::stream::{Event, Finish, Stream};

/// A request together with the judgement of its reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What is sent.
    pub request: Request,
    /// How the reply is judged.
    pub judge: Judge,
}

/// When an order was carried out.
#[derive(Debug, Clone, PartialEq)]
pub enum Judge {
    /// When the status is one of success and the body does not deny it.
    Status,
    /// When besides that the body says `success`.
    Success,
    /// When besides that at least one token came, and the reply was not aborted.
    Generates(Dialect),
}

impl Call {
    pub(crate) fn new(request: Request, judge: Judge) -> Self {
        Self { request, judge }
    }

    pub(crate) fn plain(request: Request) -> Self {
        Self::new(request, Judge::Status)
    }

    /// Whether the engine did what it was asked, by its reply.
    pub fn judge(&self, status: u16, body: &str) -> Result<(), Refused> {
        let refused = |message: String| Refused {
            status: Some(status),
            client: false,
            message,
        };
        if !(200..300).contains(&status) {
            return Err(Refused::of(status, body));
        }
        if let Judge::Generates(dialect) = &self.judge {
            return generated(dialect, body).map_err(refused);
        }
        let said: Value = serde_json::from_str(body).unwrap_or_default();
        match (said["success"].as_bool(), &self.judge) {
            (Some(false), _) => Err(refused(crate::error::message_of(body))),
            (None, Judge::Success) => {
                let request = self.request.path;
                Err(refused(format!("{request} does not say that it succeeded")))
            }
            _ => Ok(()),
        }
    }
}

fn generated(dialect: &Dialect, body: &str) -> Result<(), String> {
    let mut tokens = 0;
    for event in Stream::whole(dialect, false, body) {
        match event {
            Event::Tokens { ids, .. } => tokens += ids.len(),
            Event::End {
                finish: Finish::Abort(why),
                ..
            } => return Err(why.message),
            Event::Failed { message, .. } => return Err(message),
            Event::End { .. } => {}
        }
    }
    match tokens {
        0 => Err("no token came".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_status_of_success_does_not_outweigh_what_the_body_says() {
        let call = |judge| Call::new(Request::get("/x"), judge);
        let denied = r#"{"success": false, "message": "no such folder"}"#;
        for judge in [Judge::Status, Judge::Success] {
            let refused = call(judge).judge(200, denied).unwrap_err();
            assert_eq!(
                (refused.message.as_str(), refused.client),
                ("no such folder", false)
            );
        }
        assert!(call(Judge::Success).judge(200, "null").is_err());
        assert_eq!(
            call(Judge::Success).judge(200, r#"{"success": true}"#),
            Ok(())
        );
        // Some orders are answered without a word.
        assert_eq!(call(Judge::Status).judge(200, ""), Ok(()));
        assert!(call(Judge::Status).judge(400, "").unwrap_err().client);
    }
}
