//! Who else is told: `[alarms]`.
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[alarms]`: who is told of alarms and incidents besides those who look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Alarms {
    /// An address, `https://HOST/PATH` or `http://HOST/PATH`, to which whoever leads posts a JSON document for each alarm that
    /// is raised or cleared, and for each incident that begins or ends: at least once, so that a receiver drops those whose `id`
    /// it has. While it takes nothing, the newest of each waits. No redirect is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// A file with a secret of 32 bytes or more, readable by its owner and his group only. With it each document has a header
    /// `Robust-Signature: sha256=HEX`, the HMAC-SHA256 of the body with the file's content, without blanks at its ends, as the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_secret_file: Option<PathBuf>,
}

impl Alarms {
    // Nodes of an earlier build do not know the section.
    pub(in crate::job) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What is wrong with an address, in the words of a fix; none: it can be posted to.
pub(in crate::job) fn wrong_address(url: &str) -> Option<&'static str> {
    const SHAPE: &str = "write https://HOST/PATH, or http://HOST/PATH";
    let is_plain = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c);
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest.filter(|_| url.chars().all(is_plain)) else {
        return Some(SHAPE);
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Some(
            "leave name and password out of it: a receiver knows the job by `webhook_secret_file`",
        );
    }
    if path.contains('#') {
        return Some("leave out what follows `#`, which is never sent");
    }
    (!is_host(authority)).then_some(SHAPE)
}

/// Whether it is a host, perhaps with a port: `example.org`, `10.0.0.1:8080`, `[::1]:8080`.
fn is_host(authority: &str) -> bool {
    let (host, port) = match authority
        .strip_prefix('[')
        .and_then(|six| six.split_once(']'))
    {
        Some((six, rest)) => match (six.parse::<std::net::Ipv6Addr>(), rest.strip_prefix(':')) {
            (Ok(_), Some(port)) => ("six", Some(port)),
            (Ok(_), None) if rest.is_empty() => ("six", None),
            _ => return false,
        },
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._~%".contains(c);
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    !host.is_empty() && host.chars().all(is_name) && port.is_none_or(is_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_a_path_and_bears_no_secret_of_a_person() {
        for url in [
            "https://hooks.example.org/T0/B0?x=1",
            "http://127.0.0.1:9000/",
            "http://[::1]:9000/a",
            "https://example.org",
        ] {
            assert_eq!(wrong_address(url), None, "{url}");
        }
        for url in [
            "",
            "example.org/a",
            "ftp://example.org",
            "https://",
            "https:///a",
            "https://exa mple.org",
            "https://example.org/a b",
            "https://example.org:0/",
            "https://example.org:99999/",
            "https://[::1/",
            "https://[::1]x/",
            "https://:80/",
        ] {
            let said = wrong_address(url).unwrap_or("it is taken");
            assert!(said.starts_with("write https://"), "{url}: {said}");
        }
        let said = wrong_address("https://ann:pass@example.org/").unwrap_or_default();
        assert!(said.contains("webhook_secret_file"), "{said}");
        let said = wrong_address("https://example.org/#x").unwrap_or_default();
        assert!(said.contains('#'), "{said}");
    }
}
