//! The token that TCP clients show: who can read the state directory may command the daemon.
use super::bounded::Connection;
use super::gate::Rights;
use crate::nodes::Secret;
use crate::state::{Readers, StateDirError, read_private, write_private};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// 32 random bytes in hex.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads the token, or makes one that only its owner can read.
    pub fn load_or_create(path: &Path) -> Result<Self, StateDirError> {
        Self::load(path, Readers::Owner)
    }

    /// The same of a file that somebody may have laid where it is, to be read by whom they like.
    pub fn load_or_create_shared(path: &Path) -> Result<Self, StateDirError> {
        Self::load(path, Readers::Any)
    }

    fn load(path: &Path, readers: Readers) -> Result<Self, StateDirError> {
        if let Some(text) = read_private(path, readers)?
            && text.trim().len() == 64
        {
            return Ok(Self(text.trim().into()));
        }
        let text = random_hex().map_err(|source| StateDirError::Io {
            doing: "reading",
            path: "/dev/urandom".into(),
            source,
        })?;
        write_private(path, format!("{text}\n").as_bytes())?;
        Ok(Self(text.into()))
    }

    /// What nodes prove to know.
    pub fn secret(&self) -> Secret {
        Secret::of(&self.0)
    }

    /// Whether a client shows this very token; the time it takes tells nothing of it.
    pub fn matches(&self, shown: &str) -> bool {
        // Compared without an early exit, so that the time taken tells nothing.
        let (a, b) = (self.0.as_bytes(), shown.as_bytes());
        a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

fn random_hex() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// The tokens that are taken.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// For everything.
    pub operator: Token,
    /// For looking, if there is one.
    pub viewer: Option<Token>,
}

/// Lets requests pass that carry `authorization: Bearer TOKEN`, with what the token allows.
#[derive(Clone, Debug)]
pub struct TokenCheck(pub Tokens);

impl Interceptor for TokenCheck {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let shown = request
            .metadata()
            .get("authorization")
            .and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
        let rights = shown.map(|shown| {
            let Tokens { operator, viewer } = &self.0;
            let views = viewer.as_ref().is_some_and(|v| v.matches(shown));
            match operator.matches(shown) {
                true => Some(Rights::Operator),
                false => views.then_some(Rights::Viewer),
            }
        });
        match rights {
            Some(Some(rights)) => {
                let connection = request.extensions().get::<Connection>().cloned();
                if let Some(connection) = connection {
                    connection.proves();
                    request.extensions_mut().insert(connection.tcp);
                }
                request.extensions_mut().insert(rights);
                Ok(request)
            }
            Some(None) => Err(Status::unauthenticated("the token is not this daemon's")),
            None => Err(Status::unauthenticated(
                "no token: send `authorization: Bearer` with the content of the state \
                 directory's file `token`",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    fn with(header: &str) -> Request<()> {
        let mut request = Request::new(());
        request
            .metadata_mut()
            .insert("authorization", header.parse().unwrap());
        request
    }

    #[test]
    fn only_the_tokens_holder_passes() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("token");
        let token = Token::load_or_create(&path).unwrap();
        assert_eq!(
            Token::load_or_create(&path).unwrap(),
            token,
            "a restart keeps it"
        );
        let text = fs::read_to_string(&path).unwrap();
        let viewer = Token::load_or_create(&temp.path().join("viewer")).unwrap();
        let shown = format!("Bearer {}", viewer.0);
        let mut check = TokenCheck(Tokens {
            operator: token,
            viewer: Some(viewer),
        });
        let rights = |passed: Request<()>| passed.extensions().get::<Rights>().copied();
        let passed = check
            .call(with(&format!("Bearer {}", text.trim())))
            .unwrap();
        assert_eq!(rights(passed), Some(Rights::Operator));
        let passed = check.call(with(&shown)).unwrap();
        assert_eq!(rights(passed), Some(Rights::Viewer));
        check.call(with("Bearer nonsense")).unwrap_err();
        check.call(Request::new(())).unwrap_err();
    }
}
