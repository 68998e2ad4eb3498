//! TLS 1.3 between a daemon and the tools of whoever has one of its tokens: an operator's, a viewer's.
//!
//! ```text
//!  a token ──derive──► authority of its holders ──► a certificate for each tool, and one for the daemon
//!
//!  tool ── the token's name, in clear ──► Door ── the daemon's certificate by that token's authority ──► tool
//!       ── its own certificate, by the same ──► what holders of that token may
//! ```
//! The token itself is never sent: neither to whoever happens to listen at the daemon's address, nor to whoever
//! listens in between. Its name is a digest that tells only which token is meant.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::server;

use crate::tls::{Answering, Caller, Certified, answer_named};
use crate::{Authority, IdentityError, Term};

const CONTEXT: &str = "RobustRL 2026 authority over the holders of a token version 1";
const NAME: &str = "RobustRL 2026 name of a token version 1";
/// Under which names of tokens stand; nobody looks it up.
const DOMAIN: &str = "token.robust.internal";

/// Those who have a token, and the daemon that takes it.
#[derive(Debug)]
pub struct Holders {
    authority: Authority,
    name: String,
}

impl Holders {
    /// Of the text of a token file; blanks around it do not count.
    pub fn of(token: &str) -> Result<Self, IdentityError> {
        let secret = blake3::derive_key(CONTEXT, token.trim().as_bytes());
        Ok(Self {
            authority: Authority::of(&secret, "holders")?,
            name: Self::name_of(token),
        })
    }

    /// The name of a token by itself, for which no key is made.
    pub fn name_of(token: &str) -> String {
        let name = blake3::derive_key(NAME, token.trim().as_bytes());
        let name = blake3::Hash::from(name).to_hex();
        format!("{}.{DOMAIN}", &name[..32])
    }

    /// The name of the token, by which its holders call the daemon: a digest that tells nothing else.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the daemon answers them.
    pub fn answering(&self) -> Result<Answering, IdentityError> {
        self.certified("control")?.callee()
    }

    /// For a tool that calls the daemon.
    pub fn caller(&self) -> Result<Caller, IdentityError> {
        self.certified("tool")?.caller(&self.name, &self.name)
    }

    /// A certificate that ends with the token: whoever has that makes himself another.
    fn certified(&self, whose: &str) -> Result<Certified, IdentityError> {
        Certified::by(&self.authority, (whose, &self.name), Term::unbounded())
    }
}

/// Where a daemon answers the holders of its tokens; `May` says what a token's holders may.
#[derive(Clone)]
pub struct Door<May>(Arc<[(String, Answering, May)]>);

impl<May: Clone> Door<May> {
    /// For the holders of these tokens, of which there is one at least.
    pub fn of(tokens: Vec<(Holders, May)>) -> Result<Self, IdentityError> {
        let answers = |(holders, may): (Holders, May)| {
            let answering = holders.answering()?;
            Ok((holders.name, answering, may))
        };
        let all: Result<Vec<_>, IdentityError> = tokens.into_iter().map(answers).collect();
        Ok(Self(all?.into()))
    }

    /// Answers a tool. Returns once it is proven which token it holds.
    pub async fn answer(
        &self,
        stream: TcpStream,
    ) -> io::Result<(May, server::TlsStream<TcpStream>)> {
        answer_named(stream, |name| {
            let meant = self.0.iter().find(|(known, ..)| name == known);
            // Whoever means no token of this daemon is refused by the first one's authority, and told so.
            let (_, answering, may) = meant.or_else(|| self.0.first())?;
            Some((answering.clone(), may.clone()))
        })
        .await
    }
}

impl<May> std::fmt::Debug for Door<May> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Door(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::nodes::tests::now_ms;
    use crate::{NodeAuthority, NodeKey, Unsealed, unsealed};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const OPERATOR: &str = "one token, of 256 bits";
    const VIEWER: &str = "another token, as long";

    fn door() -> Door<&'static str> {
        let tokens = [(OPERATOR, "all"), (VIEWER, "look")];
        let tokens = tokens.map(|(token, may)| (Holders::of(token).unwrap(), may));
        Door::of(tokens.into()).unwrap()
    }

    /// What the door makes of a caller, and what the caller hears.
    async fn between(
        door: Door<&'static str>,
        caller: Caller,
    ) -> (io::Result<&'static str>, io::Result<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let answering = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (may, mut stream) = door.answer(stream).await?;
            stream.write_all(may.as_bytes()).await?;
            stream.shutdown().await?;
            Ok(may)
        });
        let called = async {
            let mut stream = caller.call(TcpStream::connect(addr).await?).await?;
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).await?;
            Ok(heard)
        };
        let called = called.await;
        (answering.await.unwrap(), called)
    }

    #[tokio::test]
    async fn each_token_opens_what_its_holders_may() {
        for (token, may) in [(OPERATOR, "all"), ("another token, as long\n", "look")] {
            let caller = Holders::of(token).unwrap().caller().unwrap();
            let (answered, called) = between(door(), caller).await;
            assert_eq!(answered.unwrap(), may);
            assert_eq!(called.unwrap(), may.as_bytes());
        }
    }

    #[tokio::test]
    async fn another_token_opens_nothing_and_a_daemon_without_the_token_is_not_believed() {
        let guess = Holders::of("a guess").unwrap().caller().unwrap();
        let key = NodeKey::new().unwrap();
        let certified = NodeAuthority::of(OPERATOR).unwrap();
        let certified = certified.certify(key.public(), "b", now_ms()).unwrap();
        let node = key.caller(&certified.pem).unwrap();
        for caller in [guess, node] {
            let (answered, called) = between(door(), caller).await;
            for error in [answered.unwrap_err(), called.unwrap_err()] {
                assert_eq!(unsealed(&error), Some(Unsealed::OtherToken), "{error:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_viewer_who_names_the_operators_token_is_refused() {
        let (viewer, operator) = (Holders::of(VIEWER).unwrap(), Holders::of(OPERATOR).unwrap());
        // The daemon's certificate is not what it verifies: nobody keeps it from going on.
        let certified = viewer.certified("tool").unwrap();
        let trusting = operator.certified("tool").unwrap();
        let forged = Certified {
            roots: trusting.roots,
            ..certified
        };
        let caller = forged.caller(&operator.name, &operator.name).unwrap();
        let (answered, called) = between(door(), caller).await;
        let error = answered.unwrap_err();
        assert_eq!(unsealed(&error), Some(Unsealed::OtherToken), "{error:?}");
        assert!(called.is_err(), "it heard nothing");
    }
}
