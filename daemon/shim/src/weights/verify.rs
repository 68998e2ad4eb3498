//! Whether the engine serves what was published.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use robust_engine::{Dialect, Event, Finish, Generate, Label, Stream, Unreadable};
use robust_shared::job::{Dtype, EngineKind, EngineWeights, Flush, RolloutCommand, Verification};
use robust_shared::weights::{Canary, CanaryError};
use robust_transport::Buffer;

use super::checksums::{self, Differs};
use crate::client::{AskError, Client};

/// How long a question may take that the engine answers without computing much.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a canary may take behind the requests under way.
const CANARY: Duration = Duration::from_secs(60);

/// A version as its trainer published it.
#[derive(Debug)]
pub struct Published<'a> {
    /// Its number.
    pub version: u64,
    /// Its bytes, every chunk verified.
    pub buffer: &'a Arc<Buffer>,
    /// The folder that has them as a model.
    pub folder: &'a Path,
    /// What it answers, if its trainer computed that.
    pub canary: Option<&'a Canary>,
}

/// The engine serves something else, or does not say what.
#[derive(Debug, thiserror::Error)]
pub enum NotVerified {
    /// The engine could not be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The engine answered something that cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The engine refused a question.
    #[error("the engine refused to be verified: {0}")]
    Refused(robust_engine::Refused),
    /// The engine names another version.
    #[error("it says that it serves version {served}")]
    Version {
        /// What it says.
        served: Label,
    },
    /// A parameter in its memory is another one.
    #[error(transparent)]
    Checksum(#[from] Differs),
    /// Its answer to the canary is not the trainer's.
    #[error("the canary: {0}")]
    Canary(#[from] CanaryError),
    /// Its answer to the canary broke.
    #[error("the canary got no answer: {0}")]
    NoAnswer(String),
}

impl NotVerified {
    /// What a user can do about it, where that is known.
    pub fn cure(&self, command: &RolloutCommand) -> Option<&'static str> {
        let wrong_weights = matches!(self, NotVerified::Canary(_));
        match (command.kind, command.weights) {
            _ if !wrong_weights => None,
            _ if command.flush == Flush::Never => Some(
                "with `rollout.command.flush = \"never\"` an engine may answer from keys and values of \
                 older weights; `flush = \"always\"` drops them with each version",
            ),
            (EngineKind::Vllm, EngineWeights::Disk) => Some(
                "vLLM on a CPU keeps a tied output head when it reloads: \
                 `rollout.command.weights = \"plugin\"` loads that too",
            ),
            _ => Some(
                "`rollout.command.canary.tolerance` says how far numbers of another precision may \
                 be apart",
            ),
        }
    }
}

/// Asks the engine what it serves.
pub(super) struct Verifier<'a> {
    pub client: &'a Client,
    pub dialect: &'a Dialect,
    pub command: &'a RolloutCommand,
}

impl Verifier<'_> {
    /// All that the job file wants looked at; the first difference is the error.
    pub async fn verify(&self, published: &Published<'_>) -> Result<(), NotVerified> {
        for look in &self.command.verify {
            match look {
                Verification::Version => self.version(published.version).await?,
                Verification::Checksum => self.checksums(published).await?,
                Verification::Canary => self.canary(published).await?,
            }
        }
        Ok(())
    }

    async fn version(&self, version: u64) -> Result<(), NotVerified> {
        let reply = self
            .client
            .ask(&self.dialect.version_served(), ANSWER)
            .await?;
        let served = self.dialect.read_version(&reply.body)?;
        match served.number() == Some(version) {
            true => Ok(()),
            false => Err(NotVerified::Version { served }),
        }
    }

    /// Only where the engine has the numbers as they were published, and all of them in one place.
    async fn checksums(&self, published: &Published<'_>) -> Result<(), NotVerified> {
        let given_to_it = matches!(
            self.command.weights,
            EngineWeights::Disk | EngineWeights::Plugin
        );
        if self.command.dtype != Dtype::Float32 || !given_to_it {
            return Ok(());
        }
        let call = self.dialect.checksums();
        let reply = self
            .client
            .ask(&call.request, ANSWER.max(self.command.load()))
            .await?;
        let judged = call.judge(reply.status, &reply.body);
        judged.map_err(NotVerified::Refused)?;
        let said = self.dialect.read_checksums(&reply.body)?;
        let compared = checksums::compare(&said, published.folder)?;
        tracing::debug!(compared, "parameters have the published bytes");
        Ok(())
    }

    async fn canary(&self, published: &Published<'_>) -> Result<(), NotVerified> {
        let Some(canary) = published.canary else {
            tracing::warn!(
                version = published.version,
                "no canary was published with it: version and checksums are all that is verified"
            );
            return Ok(());
        };
        let (ids, logprobs) = self.answer(canary, published.version).await?;
        let tolerance = self.command.tolerance() as f32;
        Ok(canary.check(&ids, &logprobs, tolerance)?)
    }

    /// The engine's greedy tokens, with their logprobs.
    async fn answer(
        &self,
        canary: &Canary,
        version: u64,
    ) -> Result<(Vec<u32>, Vec<f32>), NotVerified> {
        let request = self.dialect.generate(&Generate::greedy(
            format!("canary-{version}"),
            canary.prompt_ids.clone(),
            canary.ids.len(),
        ));
        let reply = self.client.ask(&request, CANARY).await?;
        if !reply.is_success() {
            let refused = robust_engine::Refused::of(reply.status, &reply.body);
            return Err(NotVerified::Refused(refused));
        }
        let (mut tokens, mut scores) = (Vec::new(), Vec::new());
        for event in Stream::whole(self.dialect, true, &reply.body) {
            match event {
                Event::Tokens { ids, logprobs, .. } => {
                    tokens.extend(ids);
                    scores.extend(logprobs);
                }
                Event::End {
                    finish: Finish::Abort(why),
                    ..
                } => return Err(NotVerified::NoAnswer(why.message)),
                Event::Failed { message, .. } => return Err(NotVerified::NoAnswer(message)),
                Event::End { .. } => {}
            }
        }
        Ok((tokens, scores))
    }
}
