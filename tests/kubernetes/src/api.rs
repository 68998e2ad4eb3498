//! The API server, asked over HTTPS and JSON. A client library of Kubernetes would bring types of every kind along, of which
//! a test looks at a few fields.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::papers::Papers;

/// The longest that an answer may take on a busy machine.
const ANSWER: Duration = Duration::from_secs(30);

/// A way to the API server.
pub struct Api {
    runtime: Runtime,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    address: String,
    token: String,
}

/// Why the API server did not do what was asked.
#[derive(Debug)]
pub struct Refused {
    /// Its status; 0 where it did not answer.
    pub status: u16,
    /// What it said.
    pub message: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.message)
    }
}

impl Refused {
    fn silent(why: impl fmt::Display) -> Self {
        Self {
            status: 0,
            message: why.to_string(),
        }
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Api {
    pub(crate) fn new(port: u16, papers: &Papers) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&papers.authority).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http1()
            .build();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        Self {
            runtime: runtime.unwrap(),
            client: Client::builder(TokioExecutor::new()).build(connector),
            address: format!("https://127.0.0.1:{port}"),
            token: papers.token.clone(),
        }
    }

    /// An object, or a list of them.
    ///
    /// # Errors
    /// Where there is none, or no answer.
    pub fn get(&self, path: &str) -> Result<Value, Refused> {
        self.ask(Method::GET, path, "application/json", None)
    }

    /// The objects of a list.
    ///
    /// # Errors
    /// Where there is no answer.
    pub fn list(&self, path: &str) -> Result<Vec<Value>, Refused> {
        let all = self.get(path)?;
        Ok(all["items"].as_array().cloned().unwrap_or_default())
    }

    /// Makes an object.
    ///
    /// # Errors
    /// Where that is refused.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value, Refused> {
        self.ask(Method::POST, path, "application/json", Some(object))
    }

    /// Changes some fields of an object.
    ///
    /// # Errors
    /// Where that is refused.
    pub fn patch(&self, path: &str, fields: &Value) -> Result<Value, Refused> {
        self.ask(
            Method::PATCH,
            path,
            "application/merge-patch+json",
            Some(fields),
        )
    }

    /// Deletes an object, as it says by itself, or so many seconds later.
    ///
    /// # Errors
    /// Where that is refused.
    pub fn delete(&self, path: &str, grace_s: Option<u64>) -> Result<Value, Refused> {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(seconds) = grace_s {
            options["gracePeriodSeconds"] = seconds.into();
        }
        self.ask(Method::DELETE, path, "application/json", Some(&options))
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.address))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", kind)
            .body(Full::from(body))
            .unwrap();
        let answered = async {
            let answer = self.client.request(request).await;
            let answer = answer.map_err(Refused::silent)?;
            let status = answer.status();
            let body = answer.into_body().collect().await;
            Ok((status, body.map_err(Refused::silent)?.to_bytes()))
        };
        let answered = async { tokio::time::timeout(ANSWER, answered).await };
        let (status, body) = self
            .runtime
            .block_on(answered)
            .map_err(|_| Refused::silent("no answer"))??;
        let value = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
        if status.is_success() {
            return Ok(value);
        }
        let said = value["message"].as_str().map(str::to_owned);
        Err(Refused {
            status: status.as_u16(),
            message: said.unwrap_or_else(|| value.to_string()),
        })
    }
}
