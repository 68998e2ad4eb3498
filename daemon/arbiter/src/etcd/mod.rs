//! The arbiter that is etcd, 3.4 or newer, over gRPC.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use thiserror::Error;
use tonic::transport::{Channel, Uri};

use self::failure::Failure;
use self::members::{Asked, Members};
use self::translate::{entry, first_of, prefix_end, seconds, transacted, transaction};
use crate::generated::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, RangeRequest, RangeResponse,
    kv_client::KvClient, lease_client::LeaseClient,
};
use crate::{
    Arbiter, ArbiterError, Changed, Compare, Entry, Lease, LeaseId, Revision, Transacted, Write,
};

mod failure;
mod member;
mod members;
mod tls;
mod translate;
mod watch;

/// A read of a prefix is one message, and etcd sends as much as there is.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Where etcd is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its members, as `http://host:port` or `https://host:port`: the nearest first, which is asked first as long as it
    /// answers.
    pub endpoints: Vec<Uri>,
    /// What both sides of `https` prove themselves with.
    pub tls: Option<Tls>,
    /// How long a call may take, with all members that are asked one after the other.
    pub timeout: Duration,
}

impl Options {
    /// Of these members: calls take a second at most.
    #[must_use]
    pub fn new(endpoints: Vec<Uri>) -> Self {
        Self {
            endpoints,
            tls: None,
            timeout: Duration::from_secs(1),
        }
    }
}

/// Files in PEM, read anew for each connection: whoever renews them needs to tell nobody.
#[derive(Clone, Debug)]
pub struct Tls {
    /// This side's certificate, and those between it and the authority that etcd knows.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// The authority that certified the members of etcd.
    pub authority: PathBuf,
}

/// Why there is no arbiter with these options.
#[derive(Debug, Error)]
pub enum SettingError {
    /// Nobody to be asked.
    #[error("there is no endpoint of etcd; name at least one, as http://127.0.0.1:2379")]
    NoEndpoint,
    /// Not an address that can be called.
    #[error("{0} is no endpoint of etcd; it is http://HOST:PORT or https://HOST:PORT")]
    Endpoint(Uri),
    /// Nothing to prove oneself with.
    #[error(
        "{0} is to be called with TLS, and there is no certificate; name one, its key and etcd's authority"
    )]
    NoTls(Uri),
    /// Certificates of no use.
    #[error("{}: {why}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The certificate and the key are not for each other, or are of a kind that is not known.
    #[error("TLS cannot be spoken with {} and {}: {why}", certificate.display(), key.display())]
    Certificate {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        why: rustls::Error,
    },
}

/// The members of one etcd. Cheap to clone; connections are made when something is asked, and shared.
#[derive(Clone, Debug)]
pub struct Etcd {
    members: Arc<Members>,
}

impl Etcd {
    /// Looks at the options, and at the files that they name. Nobody is called yet, so this works while etcd is down.
    pub fn new(options: Options) -> Result<Self, SettingError> {
        Ok(Self {
            members: Arc::new(Members::new(options)?),
        })
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, ArbiterError> {
        let ask = |asked: Asked| {
            let request = request.clone();
            async move { Ok(kv(&asked).range(asked.request(request)).await?.into_inner()) }
        };
        self.members.repeatable(ask).await
    }
}

fn kv(asked: &Asked) -> KvClient<Channel> {
    KvClient::new(asked.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES)
}

#[tonic::async_trait]
impl Arbiter for Etcd {
    async fn read(&self, key: &str) -> Result<Option<Entry>, ArbiterError> {
        let request = RangeRequest {
            key: key.into(),
            range_end: Vec::new(),
        };
        let found = self.range(request).await?.kvs;
        found.into_iter().next().map(entry).transpose()
    }

    async fn read_prefix(&self, prefix: &str) -> Result<(Vec<Entry>, Revision), ArbiterError> {
        let (key, range_end) = prefix_end(prefix);
        let found = self.range(RangeRequest { key, range_end }).await?;
        let revision = Revision(found.header.unwrap_or_default().revision);
        let entries = found.kvs.into_iter().map(entry);
        Ok((entries.collect::<Result<_, _>>()?, revision))
    }

    async fn transact(
        &self,
        compares: Vec<Compare>,
        writes: Vec<Write>,
    ) -> Result<Transacted, ArbiterError> {
        let lease = writes.iter().find_map(|write| match write {
            Write::Put { lease, .. } => *lease,
            Write::Delete { .. } => None,
        });
        let request = transaction(compares, writes);
        let ask = |asked: Asked| {
            let request = request.clone();
            async move {
                let answer = kv(&asked).txn(asked.request(request)).await;
                let answer = answer.map_err(|status| Failure::from(status).of_lease(lease))?;
                Ok(answer.into_inner())
            }
        };
        transacted(self.members.once(ask).await?)
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease, ArbiterError> {
        let ttl = seconds(ttl);
        // One whose answer is lost lives for its duration, and nothing is bound to it.
        let ask = |asked: Asked| async move {
            let request = asked.request(LeaseGrantRequest { ttl });
            let granted = LeaseClient::new(asked.channel()).lease_grant(request).await;
            let granted = granted?.into_inner();
            match granted.error.as_str() {
                "" => Ok(Lease {
                    id: LeaseId(granted.id),
                    ttl: Duration::from_secs(granted.ttl.unsigned_abs()),
                }),
                why => Err(Failure::Refused(why.to_owned())),
            }
        };
        self.members.repeatable(ask).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, ArbiterError> {
        let ask = |asked: Asked| async move {
            let once = futures::stream::once(async move { LeaseKeepAliveRequest { id: lease.0 } });
            let request = asked.request(once);
            let mut client = LeaseClient::new(asked.channel());
            let mut answers = client.lease_keep_alive(request).await?.into_inner();
            let kept = answers.message().await?;
            let kept = kept.ok_or_else(|| Failure::Lost("it did not answer".to_owned()))?;
            match u64::try_from(kept.ttl) {
                Ok(ttl) if ttl > 0 => Ok(Duration::from_secs(ttl)),
                _ => Err(Failure::LeaseOver(lease)),
            }
        };
        self.members.repeatable(ask).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), ArbiterError> {
        let ask = |asked: Asked| async move {
            let request = asked.request(LeaseRevokeRequest { id: lease.0 });
            let revoked = LeaseClient::new(asked.channel())
                .lease_revoke(request)
                .await;
            revoked.map_err(|status| Failure::from(status).of_lease(Some(lease)))?;
            Ok(())
        };
        match self.members.repeatable(ask).await {
            Err(ArbiterError::LeaseOver { .. }) => Ok(()),
            revoked => revoked,
        }
    }

    fn watch(
        &self,
        prefix: &str,
        from: Revision,
    ) -> BoxStream<'static, Result<Changed, ArbiterError>> {
        watch::watch(
            Arc::clone(&self.members),
            prefix_end(prefix),
            first_of(from),
        )
    }
}
