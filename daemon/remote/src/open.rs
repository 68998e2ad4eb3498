//! From a URL to a store.
use crate::{RemoteError, SigningKey};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectStore, ObjectStoreScheme, RetryConfig};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// How long one request may take: a part of some MiB over a slow line.
const REQUEST: Duration = Duration::from_secs(60);
/// How long a request is tried again before the upload counts as failed. The next checkpoint is
/// another chance, so this need not outlast an outage.
const RETRY: Duration = Duration::from_secs(60);
const RETRIES: usize = 6;

/// An object store, at a place of it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Remote {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Under which everything is.
    pub(crate) root: Key,
    /// What checkpoints are signed with; none: they are not.
    pub(crate) signing_key: Option<SigningKey>,
    url: String,
}

/// Whether a URL names a store that this build can use; nothing is asked of it.
pub fn check(url: &str) -> Result<(), RemoteError> {
    parse(url).map(drop)
}

fn parse(text: &str) -> Result<(Url, ObjectStoreScheme, Key), RemoteError> {
    let refused = |reason: String| RemoteError::Url {
        url: text.to_owned(),
        reason,
    };
    let examples =
        "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER";
    let url = Url::parse(text).map_err(|e| refused(format!("{e}; {examples}")))?;
    let (scheme, key) = ObjectStoreScheme::parse(&url)
        .map_err(|_| refused(format!("its scheme is not known; {examples}")))?;
    match scheme {
        ObjectStoreScheme::Local
        | ObjectStoreScheme::AmazonS3
        | ObjectStoreScheme::GoogleCloudStorage
        | ObjectStoreScheme::MicrosoftAzure => Ok((url, scheme, key)),
        _ => Err(refused(format!("it keeps nothing; {examples}"))),
    }
}

impl Remote {
    /// Opens a store. Nothing is asked of it yet: a wrong bucket shows at the first use.
    pub fn open(text: &str) -> Result<Self, RemoteError> {
        let (url, scheme, key) = parse(text)?;
        let refused = |reason: String| RemoteError::Url {
            url: text.to_owned(),
            reason,
        };
        let said = |e: object_store::Error| refused(e.to_string());
        let retry = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY,
            ..RetryConfig::default()
        };
        let client = ClientOptions::new().with_timeout(REQUEST);
        let store: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::Local => return Self::folder(&url, text),
            ObjectStoreScheme::AmazonS3 => {
                let builder = AmazonS3Builder::from_env().with_url(url);
                // A server of one's own is often reached without TLS; its address says so.
                let plain = std::env::var("AWS_ENDPOINT").or(std::env::var("AWS_ENDPOINT_URL"));
                let plain = plain.is_ok_and(|e| e.starts_with("http://"));
                let client = client.with_allow_http(plain);
                let builder = builder.with_client_options(client).with_retry(retry);
                Arc::new(builder.build().map_err(said)?)
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                let builder = GoogleCloudStorageBuilder::from_env().with_url(url);
                let builder = builder.with_client_options(client).with_retry(retry);
                Arc::new(builder.build().map_err(said)?)
            }
            _ => {
                let builder = MicrosoftAzureBuilder::from_env().with_url(url);
                let builder = builder.with_client_options(client).with_retry(retry);
                Arc::new(builder.build().map_err(said)?)
            }
        };
        Ok(Self::over(store, key, text))
    }

    /// In a folder: of a network file system, say. It is made if it is not there.
    fn folder(url: &Url, text: &str) -> Result<Self, RemoteError> {
        let refused = |reason: String| RemoteError::Url {
            url: text.to_owned(),
            reason,
        };
        let path = url
            .to_file_path()
            .map_err(|()| refused("it names no folder of this machine".to_owned()))?;
        std::fs::create_dir_all(&path).map_err(|e| refused(e.to_string()))?;
        let store = LocalFileSystem::new_with_prefix(&path)
            .map_err(|e| refused(e.to_string()))?
            .with_fsync(true)
            .with_automatic_cleanup(true);
        Ok(Self::over(Arc::new(store), Key::default(), text))
    }

    /// Over a store that is open, below `root`.
    pub fn over(store: Arc<dyn ObjectStore>, root: Key, url: &str) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let signing_key = None;
        Self {
            store,
            root,
            signing_key,
            url,
        }
    }

    /// The same, whose checkpoints are signed with this key, if there is one: others are of no use.
    pub fn signed_with(self, signing_key: Option<SigningKey>) -> Self {
        Self {
            signing_key,
            ..self
        }
    }

    /// The store, for what keeps other things than checkpoints there.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Below which everything is in it.
    pub fn root(&self) -> &Key {
        &self.root
    }

    /// What it was opened with.
    pub fn url(&self) -> &str {
        &self.url
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_wrong_address_is_told_with_right_ones() {
        for (url, why) in [
            ("bucket/prefix", "relative URL"),
            ("ftp://host/x", "not known"),
            ("memory:///", "keeps nothing"),
            ("http://host/x", "keeps nothing"),
        ] {
            let error = check(url).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("s3://"), "{error}");
        }
        for url in ["s3://b/p", "gs://b", "az://c/p", "file:///x", "s3a://b/p"] {
            check(url).unwrap();
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_refused() {
        let error = Remote::open("file:///proc/nowhere").unwrap_err();
        assert!(error.to_string().contains("/proc/nowhere"), "{error}");
    }
}
