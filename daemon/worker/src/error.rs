//! Why a built-in role does not start.

use robust_transport::{BufferError, TransportError};

/// A built-in role could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What every role needs is missing.
    #[error(transparent)]
    Role(#[from] robust_role::StartError),
    /// The model folder is unusable.
    #[error(transparent)]
    Model(#[from] crate::model::hf::HfError),
    /// The model's shape is unusable.
    #[error(transparent)]
    Config(#[from] crate::model::config::ConfigError),
    /// The tokenizer is unusable.
    #[error(transparent)]
    Tokenizer(#[from] crate::model::tokenizer::TokenizerError),
    /// The sampler refused its sizes.
    #[error(transparent)]
    Sampler(#[from] crate::model::sampler::SamplerError),
    /// The role takes more memory than there is.
    #[error(transparent)]
    TooLarge(#[from] robust_shared::footprint::TooLarge),
    /// The weights' memory cannot be used.
    #[error(transparent)]
    Weights(#[from] crate::model::flat::LyingIn),
}

impl From<TransportError> for StartError {
    fn from(error: TransportError) -> Self {
        Self::Role(error.into())
    }
}

impl From<BufferError> for StartError {
    fn from(error: BufferError) -> Self {
        Self::Role(error.into())
    }
}

impl StartError {
    /// A file or a connection could not be read or made.
    pub(crate) fn io(doing: &'static str, path: &str, source: std::io::Error) -> Self {
        let path = path.into();
        Self::Role(robust_role::StartError::Io {
            doing,
            path,
            source,
        })
    }

    /// A thread ended that must not.
    pub(crate) fn thread(name: &'static str) -> Self {
        Self::Role(robust_role::StartError::Thread(name))
    }
}
