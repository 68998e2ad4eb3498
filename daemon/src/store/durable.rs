//! The answer to a write.
use super::error::StoreError;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// A write on its way: await it, or `wait` for it, to know that it is durable. It was queued when
/// this value was made; dropping the value cancels nothing.
#[must_use = "until this resolves the write may be lost"]
#[derive(Debug)]
pub struct Durable<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> Durable<T> {
    pub(super) fn new(answer: oneshot::Receiver<Result<T, StoreError>>) -> Self {
        Self(answer)
    }

    /// Blocks until it is durable. Not for async code.
    pub fn wait(self) -> Result<T, StoreError> {
        self.0.blocking_recv().unwrap_or(Err(StoreError::Closed))
    }
}

impl<T> Future for Durable<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or(Err(StoreError::Closed)))
    }
}
