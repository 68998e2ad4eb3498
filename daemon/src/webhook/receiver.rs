//! Who is posted to, and how.
use crate::state::{Readers, read_private};
use aws_lc_rs::hmac;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use robust_shared::job::Alarms;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A secret of fewer bytes is one that somebody thought of.
const LEAST_BYTES: usize = 32;

/// Why nobody can be posted to.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The address is none.
    #[error("alarms.webhook: it is no address to post to: {0}; write https://HOST/PATH")]
    Url(String),
    /// The secret cannot be used.
    #[error("alarms.webhook_secret_file: {path}: {why}")]
    Secret {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There is no client for it.
    #[error("alarms.webhook: {0}")]
    Client(String),
}

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For the answer to one post.
    pub answer: Duration,
    /// Between a post that failed and the next, at first; twice as long each time.
    pub first_wait: Duration,
    /// The longest such wait.
    pub longest_wait: Duration,
    /// A document that failed is dropped when others have been taken for so long, if it fails still.
    pub in_all: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(5),
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            in_all: Duration::from_secs(600),
        }
    }
}

/// Who is posted to.
#[derive(Clone)]
pub struct Receiver {
    pub(super) client: Client,
    pub(super) url: Url,
    pub(super) key: Option<hmac::Key>,
    pub(super) patience: Patience,
}

/// Neither address nor secret.
impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.host()).finish()
    }
}

impl Receiver {
    /// The one that a job names; none: it names none.
    pub fn of(alarms: &Alarms) -> Result<Option<Self>, WebhookError> {
        let Some(url) = &alarms.webhook else {
            return Ok(None);
        };
        let key = alarms.webhook_secret_file.as_deref();
        let key = key.map(read_key).transpose()?;
        Self::new(url, key, Patience::default()).map(Some)
    }

    pub(super) fn new(
        url: &str,
        key: Option<hmac::Key>,
        patience: Patience,
    ) -> Result<Self, WebhookError> {
        let url = Url::parse(url).map_err(|e| WebhookError::Url(e.to_string()))?;
        let mut builder = Client::builder()
            .timeout(patience.answer)
            // Where it leads is somebody else's choice, perhaps a host that only this machine reaches.
            .redirect(Policy::none())
            .referer(false)
            .user_agent(concat!("robustd/", env!("CARGO_PKG_VERSION")));
        if url.scheme() == "http" {
            // It needs no certificates, which a machine may not have.
            builder = builder.tls_certs_only([]);
        }
        if is_here(&url) {
            builder = builder.no_proxy();
        }
        let client = builder.build();
        let client = client.map_err(|e| WebhookError::Client(in_words(&e)))?;
        Ok(Self {
            client,
            url,
            key,
            patience,
        })
    }

    /// Where it is, without what only who posts there needs to know.
    pub fn host(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

/// Whether it is on this machine, which no proxy leads to.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The key of signatures.
fn read_key(path: &Path) -> Result<hmac::Key, WebhookError> {
    let wrong = |why: String| WebhookError::Secret {
        path: path.to_owned(),
        why,
    };
    let read = read_private(path, Readers::Group).map_err(|e| wrong(e.to_string()))?;
    let secret = read.ok_or_else(|| wrong("it is not there".to_owned()))?;
    let secret = secret.trim().as_bytes();
    match secret.len() {
        LEAST_BYTES.. => Ok(hmac::Key::new(hmac::HMAC_SHA256, secret)),
        bytes => Err(wrong(format!(
            "it has {bytes} bytes, and a secret needs {LEAST_BYTES} at least: make one by \
             `(umask 077; openssl rand -hex 32 > FILE)`"
        ))),
    }
}

/// An error with what led to it, and without the address.
pub(super) fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    let causes: String = causes.map(|e| format!(": {e}")).collect();
    format!("{error}{causes}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn alarms(webhook: &str, secret: Option<&Path>) -> Alarms {
        Alarms {
            webhook: Some(webhook.to_owned()),
            webhook_secret_file: secret.map(Path::to_owned),
        }
    }

    #[test]
    fn a_job_without_a_webhook_has_no_receiver_and_what_is_shown_of_one_is_its_host() {
        assert!(Receiver::of(&Alarms::default()).unwrap().is_none());
        let receiver = Receiver::of(&alarms("http://10.0.0.7:9000/T0/s3cret?k=x", None));
        let receiver = receiver.unwrap().unwrap();
        assert_eq!(receiver.host(), "http://10.0.0.7:9000");
        assert_eq!(
            format!("{receiver:?}"),
            "Receiver(\"http://10.0.0.7:9000\")"
        );
    }

    #[test]
    fn a_secret_that_others_can_read_or_that_is_short_is_refused_by_its_path_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hook.secret");
        let refusal = || {
            let refused = Receiver::of(&alarms("http://127.0.0.1:1/", Some(&path)));
            refused.unwrap_err().to_string()
        };
        assert!(refusal().ends_with("hook.secret: it is not there"));
        std::fs::write(&path, "abcdefgh\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let said = refusal();
        assert!(said.contains("8 bytes") && !said.contains("abcd"), "{said}");
        std::fs::write(&path, "f".repeat(64)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let said = refusal();
        assert!(said.contains("chmod") && !said.contains("ffff"), "{said}");
    }

    #[test]
    fn only_what_is_on_this_machine_is_reached_past_a_proxy() {
        for (url, here) in [
            ("http://127.0.0.1:9/", true),
            ("http://[::1]:9/", true),
            ("http://localhost/", true),
            ("http://10.0.0.7/", false),
            ("https://hooks.example.org/", false),
        ] {
            assert_eq!(is_here(&Url::parse(url).unwrap()), here, "{url}");
        }
    }
}
