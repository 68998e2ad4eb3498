//! Where an engine is asked.
use std::fmt;
use std::net::SocketAddr;

const SEALED: &str = "https://";

/// An engine's address, as its hello and a route have it: `ip:port`, or `https://ip:port` where it is asked over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineAddr<'a> {
    /// `ip:port`.
    pub at: &'a str,
    /// Whether TLS is spoken there.
    pub sealed: bool,
}

impl<'a> EngineAddr<'a> {
    /// Of what a hello has.
    pub fn of(text: &'a str) -> Self {
        match text.strip_prefix(SEALED) {
            Some(at) => Self { at, sealed: true },
            None => Self {
                at: text,
                sealed: false,
            },
        }
    }

    /// As a hello says it of an engine that listens there.
    pub fn said(at: SocketAddr, sealed: bool) -> String {
        let at = &at.to_string();
        EngineAddr { at, sealed }.to_string()
    }

    /// The URL of a path there, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.sealed { SEALED } else { "http://" };
        format!("{scheme}{}{path}", self.at)
    }
}

impl fmt::Display for EngineAddr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.sealed { SEALED } else { "" };
        write!(f, "{scheme}{}", self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_whether_tls_is_spoken_there() {
        for (text, url) in [
            ("10.0.0.1:80", "http://10.0.0.1:80/health"),
            ("https://[::1]:80", "https://[::1]:80/health"),
        ] {
            let address = EngineAddr::of(text);
            assert_eq!(address.to_string(), text);
            assert_eq!(address.url("/health"), url);
        }
        let at = SocketAddr::from(([10, 0, 0, 1], 80));
        assert_eq!(EngineAddr::said(at, true), "https://10.0.0.1:80");
        assert_eq!(EngineAddr::said(at, false), "10.0.0.1:80");
    }
}
