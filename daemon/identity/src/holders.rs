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

use crate::persons::Person;
use crate::tls::{Answering, Caller, Certified, answer_named};
use crate::{Authority, IdentityError, Term};

const CONTEXT: &str = "RobustRL 2026 authority over the holders of a token version 1";
const NAME: &str = "RobustRL 2026 name of a token version 1";
/// Under which names of tokens stand; nobody looks it up.
const DOMAIN: &str = "token.robust.internal";

/// Those who have a token, and the daemon that takes it.
pub struct Holders {
    authority: Authority,
    name: String,
    /// What persons' own tokens are made of, and their kind.
    persons: Option<(&'static str, Box<str>)>,
}

impl Holders {
    /// Of the text of a token file; blanks around it do not count.
    pub fn of(token: &str) -> Result<Self, IdentityError> {
        let secret = blake3::derive_key(CONTEXT, token.trim().as_bytes());
        Ok(Self {
            authority: Authority::of(&secret, "holders")?,
            name: Self::name_of(token),
            persons: None,
        })
    }

    /// The same, and those who have tokens of their own of this kind, made of this token.
    pub fn with_persons(token: &str, kind: &'static str) -> Result<Self, IdentityError> {
        Ok(Self {
            persons: Some((kind, token.into())),
            ..Self::of(token)?
        })
    }

    /// The name of a token by itself, for which no key is made.
    pub fn name_of(token: &str) -> String {
        if let Some(person) = Person::of_token(token) {
            return person.called();
        }
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

impl std::fmt::Debug for Holders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holders")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Where a daemon answers the holders of its tokens; `May` says what a token's holders may.
#[derive(Clone)]
pub struct Door<May>(Arc<[Way<May>]>);

/// Those of one token.
struct Way<May> {
    name: String,
    answering: Answering,
    may: May,
    persons: Option<(&'static str, Box<str>)>,
}

impl<May: Clone> Way<May> {
    /// How somebody with a token of his own is answered, if that is one of these and not over.
    fn of_person(&self, person: &Person) -> Option<Answering> {
        let (kind, token) = self.persons.as_ref()?;
        let is_good = *kind == person.kind() && !person.is_over();
        let holders = is_good.then(|| Holders::of(&person.token(token)));
        holders?.ok()?.answering().ok()
    }
}

impl<May: Clone> Door<May> {
    /// For the holders of these tokens, of which there is one at least.
    pub fn of(tokens: Vec<(Holders, May)>) -> Result<Self, IdentityError> {
        let answers = |(holders, may): (Holders, May)| {
            Ok(Way {
                answering: holders.answering()?,
                name: holders.name,
                may,
                persons: holders.persons,
            })
        };
        let all: Result<Vec<_>, IdentityError> = tokens.into_iter().map(answers).collect();
        Ok(Self(all?.into()))
    }

    /// Answers a tool. Returns once it is proven which token it holds, and whose own that is, if anybody's.
    pub async fn answer(
        &self,
        stream: TcpStream,
    ) -> io::Result<(May, Option<Person>, server::TlsStream<TcpStream>)> {
        let answered = answer_named(stream, |name| self.meant(name)).await?;
        let ((may, person), stream) = answered;
        Ok((may, person, stream))
    }

    fn meant(&self, name: &str) -> Option<(Answering, (May, Option<Person>))> {
        if let Some(person) = Person::of_call(name) {
            let mut ways = self.0.iter();
            let found = ways.find_map(|way| Some((way.of_person(&person)?, way.may.clone())));
            if let Some((answering, may)) = found {
                return Some((answering, (may, Some(person))));
            }
        }
        let meant = self.0.iter().find(|way| way.name == name);
        // Whoever means no token of this daemon is refused by the first one's authority, and told so.
        let way = meant.or_else(|| self.0.first())?;
        Some((way.answering.clone(), (way.may.clone(), None)))
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
        let tokens = [
            (Holders::with_persons(OPERATOR, "operator"), "all"),
            (Holders::with_persons(VIEWER, "viewer"), "look"),
        ];
        Door::of(tokens.map(|(holders, may)| (holders.unwrap(), may)).into()).unwrap()
    }

    /// What the door makes of a caller, and what the caller hears.
    async fn between(
        door: Door<&'static str>,
        caller: Caller,
    ) -> (io::Result<&'static str>, io::Result<Vec<u8>>) {
        let (answered, called) = between_known(door, caller).await;
        (answered.map(|(may, _)| may), called)
    }

    /// The same, and whose own token it was.
    async fn between_known(
        door: Door<&'static str>,
        caller: Caller,
    ) -> (
        io::Result<(&'static str, Option<Person>)>,
        io::Result<Vec<u8>>,
    ) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let answering = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (may, person, mut stream) = door.answer(stream).await?;
            stream.write_all(may.as_bytes()).await?;
            stream.shutdown().await?;
            Ok((may, person))
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

    fn alice(kind: &str, since_now_s: i64) -> Person {
        let now_s = i64::try_from(now_ms() / 1000).unwrap();
        let until = u64::try_from(now_s + since_now_s).unwrap();
        Person::new(kind, "alice", until).unwrap()
    }

    #[tokio::test]
    async fn a_persons_own_token_opens_what_its_kind_may_and_says_whose_it_is() {
        for (kind, of_all, may) in [("operator", OPERATOR, "all"), ("viewer", VIEWER, "look")] {
            let alice = alice(kind, 3600);
            let own = Holders::of(&alice.token(of_all)).unwrap();
            let (answered, called) = between_known(door(), own.caller().unwrap()).await;
            assert_eq!(answered.unwrap(), (may, Some(alice)));
            assert_eq!(called.unwrap(), may.as_bytes());
        }
    }

    #[tokio::test]
    async fn one_that_is_over_or_of_another_name_kind_or_root_opens_nothing() {
        let good = alice("operator", 3600);
        let secret = good.token(OPERATOR);
        let (_, secret) = secret.rsplit_once('.').unwrap();
        let until = good.until_s();
        for token in [
            alice("operator", -1).token(OPERATOR),
            alice("operator", 3600).token(VIEWER),
            alice("viewer", 3600).token(OPERATOR),
            alice("admin", 3600).token(OPERATOR),
            format!("operator.bob.{until}.{secret}"),
            format!("operator.alice.{}.{secret}", until + 1),
        ] {
            let caller = Holders::of(&token).unwrap().caller().unwrap();
            let (answered, called) = between(door(), caller).await;
            for error in [answered.unwrap_err(), called.unwrap_err()] {
                assert_eq!(unsealed(&error), Some(Unsealed::OtherToken), "{token}");
            }
        }
    }
}
