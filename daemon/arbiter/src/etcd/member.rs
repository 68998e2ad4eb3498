//! One member, and the connection to it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Uri};

use super::failure::{Failure, NotReached};
use super::{SettingError, Tls, tls};
use crate::generated::etcdserverpb::StatusRequest;
use crate::generated::etcdserverpb::maintenance_client::MaintenanceClient;

/// A member of etcd.
#[derive(Debug)]
pub(super) struct Member {
    /// As it was named.
    name: String,
    host: String,
    port: u16,
    tls: Option<Tls>,
    /// Over which it has answered; a lost answer takes it away.
    held: Mutex<Option<Numbered>>,
    /// Held by whoever makes a new one.
    connecting: tokio::sync::Mutex<()>,
}

/// A connection, told apart from those before it.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    pub channel: Channel,
    number: u64,
}

impl Member {
    pub fn new(uri: &Uri, tls: Option<&Tls>) -> Result<Self, SettingError> {
        let (Some(host), Some(port)) = (uri.host(), uri.port_u16()) else {
            return Err(SettingError::Endpoint(uri.clone()));
        };
        let tls = match (uri.scheme_str(), tls) {
            (Some("http"), _) => None,
            (Some("https"), Some(tls)) => Some(tls.clone()),
            (Some("https"), None) => return Err(SettingError::NoTls(uri.clone())),
            _ => return Err(SettingError::Endpoint(uri.clone())),
        };
        Ok(Self {
            name: uri.to_string().trim_end_matches('/').to_owned(),
            host: host.to_owned(),
            port,
            tls,
            held: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connection, a new one where there is none: one over which the member has answered. A connection to one that
    /// is frozen comes about as well, and what is asked over it would be done when it thaws.
    pub async fn channel(&self, number: u64, within: Duration) -> Result<Numbered, Failure> {
        if let Some(held) = self.held() {
            return Ok(held);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(held) = self.held() {
            return Ok(held);
        }
        let channel = self.connect(within).await?;
        let channel = Numbered { channel, number };
        *self.lock() = Some(channel.clone());
        Ok(channel)
    }

    /// An answer did not come over this connection.
    pub fn forget(&self, lost: &Numbered) {
        self.lock().take_if(|held| held.number == lost.number);
    }

    fn held(&self) -> Option<Numbered> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Numbered>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self, within: Duration) -> Result<Channel, Failure> {
        // The connector seals, so that this has no scheme of its own.
        let uri = format!("http://{}:{}", self.host, self.port);
        let endpoint = Endpoint::from_shared(uri);
        let endpoint = endpoint.map_err(|error| Failure::Refused(error.to_string()))?;
        let (host, port, tls) = (self.host.clone(), self.port, self.tls.clone());
        let connector = tower::service_fn(move |_: Uri| {
            let dialled = tls::dial(host.clone(), port, tls.clone());
            async move { Ok::<_, NotReached>(TokioIo::new(dialled.await?)) }
        });
        let connecting = endpoint.connect_with_connector(connector);
        let connected = connecting.await.map_err(|error| {
            let mut causes =
                std::iter::successors(std::error::Error::source(&error), |cause| (*cause).source());
            let reason = causes.find_map(|cause| cause.downcast_ref::<NotReached>());
            Failure::NotReached(reason.map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        let mut request = tonic::Request::new(StatusRequest {});
        request.set_timeout(within);
        let mut client = MaintenanceClient::new(connected.clone());
        match client.status(request).await.map_err(Failure::from) {
            Ok(_) => Ok(connected),
            Err(Failure::Lost(why)) => Err(Failure::NotReached(self.unproven(why))),
            Err(failure) => Err(failure),
        }
    }

    /// What the other side thinks of us is seen only by that it ends the connection, which came about for us.
    fn unproven(&self, why: String) -> String {
        match &self.tls {
            None => format!("it ended the connection, as it does where it speaks https: {why}"),
            Some(tls) => format!(
                "it ended the connection, as it does where its authority did not certify {}: {why}",
                tls.certificate.display()
            ),
        }
    }
}
