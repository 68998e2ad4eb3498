//! How roles are hosted and what is promised for it, as operators' tools read them.
use crate::v1;
use robust_shared::promises::{Hosted, Hosting, Promise};

impl From<&Hosted> for v1::HostedRole {
    fn from(hosted: &Hosted) -> Self {
        let (kind, weights) = match hosted.hosting {
            Hosting::Engine(engine) => (engine.kind.name(), engine.weights.name()),
            Hosting::BuiltIn
            | Hosting::Program(_)
            | Hosting::Environment
            | Hosting::Service { .. } => ("", ""),
        };
        Self {
            role: hosted.role.clone(),
            hosting: hosted.hosting.kind().word().to_owned(),
            kind: kind.to_owned(),
            weights: weights.to_owned(),
            text: hosted.hosting.to_string(),
        }
    }
}

impl From<&Promise> for v1::Promise {
    fn from(promise: &Promise) -> Self {
        Self {
            id: promise.invariant.id().to_owned(),
            text: promise.invariant.words().to_owned(),
            level: promise.level.word().to_owned(),
            reasons: promise.reasons.clone(),
        }
    }
}
