//! Which nodes are joined now, by the key their calls show.
use crate::links::Via;
use crate::random;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// The metadata that carries a session's key.
pub const SESSION_HEADER: &str = "robust-session";

/// The open sessions. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    open: Arc<Mutex<HashMap<String, Open>>>,
}

#[derive(Debug)]
struct Open {
    via: Via,
    /// Dropped when the session is closed.
    #[expect(dead_code, reason = "its drop is what tells")]
    closes: oneshot::Sender<()>,
}

/// An open session; dropped, it is closed.
#[derive(Debug)]
pub struct OpenSession {
    sessions: Sessions,
    key: String,
    closed: oneshot::Receiver<()>,
}

impl OpenSession {
    /// What the node's calls show.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Waits until somebody else has closed it.
    pub async fn closed(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.closed).await;
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.key);
    }
}

impl Sessions {
    /// Opens a node's session.
    pub fn open(&self, node: &str) -> io::Result<OpenSession> {
        let key = random::hex::<32>()?;
        let (closes, closed) = oneshot::channel();
        let via = Via(node.into());
        self.lock().insert(key.clone(), Open { via, closes });
        Ok(OpenSession {
            sessions: self.clone(),
            key,
            closed,
        })
    }

    /// Whether a node of this name has one.
    pub fn has(&self, node: &str) -> bool {
        self.lock().values().any(|open| &*open.via.0 == node)
    }

    /// Closes those of a node, whose streams end with them.
    pub fn close(&self, node: &str) {
        self.lock().retain(|_, open| &*open.via.0 != node);
    }

    /// Whose session a request shows.
    pub fn check<T>(&self, request: &Request<T>) -> Result<Via, Status> {
        let key = request.metadata().get(SESSION_HEADER);
        let via = key.and_then(|key| {
            let open = self.lock();
            open.get(key.to_str().ok()?).map(|open| open.via.clone())
        });
        // Not FAILED_PRECONDITION: roles would take it for their own fence. The node joins again.
        via.ok_or_else(|| Status::unauthenticated("no such session: join first"))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Open>> {
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

    #[tokio::test]
    async fn a_session_lets_calls_pass_for_as_long_as_it_is_open() {
        let sessions = Sessions::default();
        let mut check = SessionCheck(sessions.clone());
        let shown = |key: &str| {
            let mut request = Request::new(());
            request
                .metadata_mut()
                .insert(SESSION_HEADER, key.parse().unwrap());
            request
        };
        let (open, mut other) = (sessions.open("b").unwrap(), sessions.open("c").unwrap());
        let passed = check.call(shown(open.key())).unwrap();
        assert_eq!(passed.extensions().get::<Via>(), Some(&Via("b".into())));
        assert!(check.call(shown("other")).is_err());
        assert!(check.call(Request::new(())).is_err());
        let key = open.key().to_owned();
        drop(open);
        let refusal = check.call(shown(&key)).unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::Unauthenticated);
        assert!(!sessions.has("b") && sessions.has("c"));
        sessions.close("c");
        other.closed().await;
        assert!(check.call(shown(other.key())).is_err());
    }
}
