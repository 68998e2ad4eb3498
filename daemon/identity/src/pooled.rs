//! A client of engines that keeps connections, for as long as those are believed whom it made them to.

use std::error::Error;
use std::sync::{Mutex, PoisonError};

use crate::EngineClient;

/// Makes clients by whom the job believes now.
type Make<C> =
    dyn Fn(Option<&EngineClient>) -> Result<C, Box<dyn Error + Send + Sync>> + Send + Sync;

/// A client `C` with a pool of connections. Where other authorities are believed than when it was made, the next
/// request gets a new one, and connections to whom only a dropped authority certified are used no more.
pub struct Pooled<C> {
    engines: Option<EngineClient>,
    make: Box<Make<C>>,
    made: Mutex<(u64, C)>,
}

impl<C: Clone> Pooled<C> {
    /// Of the job's engines; of those of this machine alone where there is no way to know others.
    pub fn of<E: Error + Send + Sync + 'static>(
        engines: Option<EngineClient>,
        make: impl Fn(Option<&EngineClient>) -> Result<C, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // Counted before it is made: so none is kept that was made too early.
        let renewals = engines.as_ref().map_or(0, EngineClient::renewals);
        let made = Mutex::new((renewals, make(engines.as_ref())?));
        let make = Box::new(move |engines: Option<&EngineClient>| Ok(make(engines)?));
        Ok(Self {
            engines,
            make,
            made,
        })
    }

    /// The client for one request.
    pub fn now(&self) -> Result<C, Box<dyn Error + Send + Sync>> {
        let renewals = self.engines.as_ref().map_or(0, EngineClient::renewals);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.0 != renewals {
            *made = (renewals, (self.make)(self.engines.as_ref())?);
        }
        Ok(made.1.clone())
    }
}

impl<C> std::fmt::Debug for Pooled<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pooled(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::sync::Arc;

    use super::*;
    use crate::Authority;

    #[test]
    fn a_client_is_kept_until_others_are_believed() {
        let [old, new] = [b"old", b"new"].map(|secret| Authority::of(secret, "demo").unwrap());
        let engines = EngineClient::of(old.certificate()).unwrap();
        let made = |_: Option<&EngineClient>| Ok::<_, Infallible>(Arc::new(()));
        let (local, kept) = (
            Pooled::of(None, made),
            Pooled::of(Some(engines.clone()), made),
        );
        let (local, kept) = (local.unwrap(), kept.unwrap());
        let (first, alone) = (kept.now().unwrap(), local.now().unwrap());
        assert!(Arc::ptr_eq(&first, &kept.now().unwrap()));
        engines.believe(new.certificate()).unwrap();
        let second = kept.now().unwrap();
        assert!(!Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &kept.now().unwrap()));
        assert!(Arc::ptr_eq(&alone, &local.now().unwrap()));
    }
}
