//! Which requests come to a server's routes.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use robust_engine::serve::Refusal;
use robust_identity::EngineKey;

use crate::callers::Caller;

/// The route that needs no key: what watches a machine has none.
const OPEN: &str = "/health";

/// What a server asks of every request.
#[derive(Clone, Debug)]
pub struct Door {
    keys: Arc<[EngineKey]>,
    /// Where clients find a key, for who has none.
    hint: &'static str,
    /// Whether requests without one pass, too.
    open: bool,
    /// Whether bodies of requests with one may be other than JSON.
    foreign_bodies: bool,
}

/// Among a request's extensions: it showed no key.
#[derive(Clone, Copy, Debug)]
pub struct Keyless;

/// Why a request comes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// It is for somebody else, says its header `Host`.
    Host,
    /// It shows no key that is taken here.
    Key,
    /// Its body may be a page's of a browser.
    Body,
}

impl Door {
    /// One that any of these keys opens. `hint` says to a client where there is one for it.
    pub fn new(keys: impl IntoIterator<Item = EngineKey>, hint: &'static str) -> Self {
        Self {
            keys: keys.into_iter().collect(),
            hint,
            open: false,
            foreign_bodies: false,
        }
    }

    /// The same, of a server that takes more than JSON from who has a key.
    pub fn with_foreign_bodies(self) -> Self {
        Self {
            foreign_bodies: true,
            ..self
        }
    }

    /// The same, open to who has no key, if that is wanted.
    pub fn open(self, open: bool) -> Self {
        Self { open, ..self }
    }

    /// Looks at a request before its route does.
    pub async fn pass(State(door): State<Self>, mut request: Request, next: Next) -> Response {
        let shown = door.is_shown_by(request.headers());
        if let Err(stopped) = door.look(&request, shown) {
            return door.refuse(stopped);
        }
        if shown || door.open {
            Caller::proven_by(request.extensions());
        } else {
            request.extensions_mut().insert(Keyless);
        }
        next.run(request).await
    }

    fn is_shown_by(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION);
        let shown = shown.and_then(|shown| shown.to_str().ok());
        // Every key is looked at, whichever it was.
        shown.is_some_and(|shown| {
            let taken = self.keys.iter().map(|key| key.is_shown_by(shown));
            taken.fold(false, |any, this| any | this)
        })
    }

    fn look(&self, request: &Request, shown: bool) -> Result<(), Stopped> {
        let headers = request.headers();
        if !is_here(headers.get(header::HOST)) {
            return Err(Stopped::Host);
        }
        let asks_for_health = request.method() == Method::GET && request.uri().path() == OPEN;
        if !shown && !self.open && !asks_for_health {
            return Err(Stopped::Key);
        }
        let may_be_foreign = shown && self.foreign_bodies;
        match has_body(headers) && !may_be_foreign && !is_json(headers) {
            true => Err(Stopped::Body),
            false => Ok(()),
        }
    }

    fn refuse(&self, stopped: Stopped) -> Response {
        let refused = |status: StatusCode, message: &str| {
            let (status, message) = (status.as_u16(), message.to_owned());
            Refusal::Refused { status, message }.body()
        };
        match stopped {
            Stopped::Host => {
                let why = "the header `Host` names no address of this machine: ask by its IP \
                           address, `localhost` or the machine's own name";
                let body = refused(StatusCode::FORBIDDEN, why);
                (StatusCode::FORBIDDEN, axum::Json(body)).into_response()
            }
            Stopped::Key => {
                // In SGLang's words, with the remedy.
                let message = format!(
                    "Unauthorized: send `Authorization: Bearer` with {}",
                    self.hint
                );
                let body = axum::Json(refused(StatusCode::UNAUTHORIZED, &message));
                let wants = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
                (StatusCode::UNAUTHORIZED, wants, body).into_response()
            }
            Stopped::Body => {
                let why =
                    "Unsupported Media Type: send the body as `Content-Type: application/json`";
                let body = refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, axum::Json(body)).into_response()
            }
        }
    }
}

/// Whether a request is meant for this machine. A page whose name somebody let point here says that name.
fn is_here(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host else {
        // HTTP/1.0, which no browser speaks.
        return true;
    };
    let host = host.to_str().unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split_once(']').map_or("", |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || is_own_name(name)
}

/// Whether it is the machine's name, with or without its domain.
fn is_own_name(name: &str) -> bool {
    let own = rustix::system::uname();
    let own = own.nodename().to_string_lossy();
    let first = |name: &str| {
        name.split('.')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    !own.is_empty()
        && (name.eq_ignore_ascii_case(&own) || (!own.contains('.') && first(name) == first(&own)))
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    length.is_some_and(|length| length != "0") || headers.contains_key(header::TRANSFER_ENCODING)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use axum::body::Body;
    use robust_identity::EngineKeys;

    fn door() -> Door {
        Door::new([EngineKeys::of(b"job").of_engine(1)], "the key")
    }

    fn looked_at(
        door: &Door,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(), Stopped> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let shown = door.is_shown_by(request.headers());
        door.look(&request, shown)
    }

    #[test]
    fn nothing_but_health_is_for_who_has_no_key() {
        let key = EngineKeys::of(b"job").of_engine(1).bearer();
        let other = EngineKeys::of(b"job").of_engine(2).bearer();
        let shown = [("authorization", key.as_str())];
        for path in [
            "/generate",
            "/pause_generation",
            "/health_generate",
            "/metrics",
            "/health/x",
        ] {
            for wrong in [&[][..], &[("authorization", other.as_str())]] {
                assert_eq!(
                    looked_at(&door(), "GET", path, wrong),
                    Err(Stopped::Key),
                    "{path}"
                );
            }
            assert_eq!(looked_at(&door(), "GET", path, &shown), Ok(()), "{path}");
        }
        assert_eq!(looked_at(&door(), "GET", "/health", &[]), Ok(()));
        assert_eq!(
            looked_at(&door(), "POST", "/health", &[]),
            Err(Stopped::Key)
        );
        let open = door().open(true);
        assert_eq!(looked_at(&open, "POST", "/generate", &[]), Ok(()));
    }

    #[test]
    fn a_page_of_a_browser_gets_nothing_even_where_no_key_is_asked_for() {
        let open = door().open(true).with_foreign_bodies();
        let text = [("content-length", "2"), ("content-type", "text/plain")];
        assert_eq!(
            looked_at(&open, "POST", "/generate", &text),
            Err(Stopped::Body)
        );
        let chunked = [("transfer-encoding", "chunked")];
        assert_eq!(
            looked_at(&open, "POST", "/generate", &chunked),
            Err(Stopped::Body)
        );
        let json = [
            ("content-length", "2"),
            ("content-type", "application/json; charset=utf-8"),
        ];
        assert_eq!(looked_at(&open, "POST", "/generate", &json), Ok(()));
        for elsewhere in [
            "evil.example",
            "evil.example:31000",
            "localhost.evil.example",
            "[evil",
            "",
        ] {
            let host = [("host", elsewhere)];
            let looked = looked_at(&open, "GET", "/health", &host);
            assert_eq!(looked, Err(Stopped::Host), "{elsewhere}");
        }
        let own = rustix::system::uname();
        let own = format!("{}:1", own.nodename().to_string_lossy());
        for here in [
            "127.0.0.1:31000",
            "10.0.0.1",
            "[::1]:31000",
            "localhost:1",
            &own,
        ] {
            let looked = looked_at(&open, "GET", "/health", &[("host", here)]);
            assert_eq!(looked, Ok(()), "{here}");
        }
    }

    #[test]
    fn bodies_other_than_json_are_for_who_has_a_key_where_the_server_takes_them() {
        let key = EngineKeys::of(b"job").of_engine(1).bearer();
        let sound = [
            ("authorization", key.as_str()),
            ("content-length", "2"),
            ("content-type", "multipart/form-data"),
        ];
        let looked = looked_at(&door(), "POST", "/v1/audio/transcriptions", &sound);
        assert_eq!(looked, Err(Stopped::Body));
        let foreign = door().with_foreign_bodies();
        let looked = looked_at(&foreign, "POST", "/v1/audio/transcriptions", &sound);
        assert_eq!(looked, Ok(()));
    }
}
