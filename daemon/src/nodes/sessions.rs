//! Which nodes are joined now, by the key their calls show.
use crate::links::Via;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// The metadata that carries a session's key.
pub const SESSION_HEADER: &str = "robust-session";

/// The open sessions. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    open: Arc<Mutex<HashMap<String, Via>>>,
}

/// An open session; dropped, it is closed.
#[derive(Debug)]
pub struct OpenSession {
    sessions: Sessions,
    key: String,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.key);
    }
}

impl Sessions {
    /// Opens a node's session.
    pub fn open(&self, key: String, node: &str) -> OpenSession {
        self.lock().insert(key.clone(), Via(node.into()));
        OpenSession {
            sessions: self.clone(),
            key,
        }
    }

    /// Whose session a request shows.
    pub fn check<T>(&self, request: &Request<T>) -> Result<Via, Status> {
        let key = request.metadata().get(SESSION_HEADER);
        let via = key.and_then(|key| self.lock().get(key.to_str().ok()?).cloned());
        // Not FAILED_PRECONDITION: roles would take it for their own fence. The node joins again.
        via.ok_or_else(|| Status::unauthenticated("no such session: join first"))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Via>> {
        // No code can panic while it holds the lock, so a poisoned table is as good as any.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets requests of joined nodes pass, and notes which node they are of, in an extension of each.
#[derive(Clone, Debug)]
pub struct SessionCheck(pub Sessions);

impl Interceptor for SessionCheck {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let via = self.0.check(&request)?;
        request.extensions_mut().insert(via);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_session_lets_calls_pass_for_as_long_as_it_is_open() {
        let sessions = Sessions::default();
        let mut check = SessionCheck(sessions.clone());
        let shown = |key: &str| {
            let mut request = Request::new(());
            request
                .metadata_mut()
                .insert(SESSION_HEADER, key.parse().unwrap());
            request
        };
        let open = sessions.open("k".to_owned(), "b");
        let passed = check.call(shown("k")).unwrap();
        assert_eq!(passed.extensions().get::<Via>(), Some(&Via("b".into())));
        assert!(check.call(shown("other")).is_err());
        assert!(check.call(Request::new(())).is_err());
        drop(open);
        let refusal = check.call(shown("k")).unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::Unauthenticated);
    }
}
