//! Both sides on loopback, and those who are not of the job.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::tls::{Caller, Certified};
use crate::{Unsealed, unsealed};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn of(token: &str) -> Daemons {
    Daemons::of(&Daemons::key(token)).unwrap()
}

/// What a callee and whoever calls it find, each at its own end.
async fn between<T, F: Future<Output = io::Result<T>>>(
    callee: Callee,
    call: impl FnOnce(TcpStream) -> F,
) -> (io::Result<Vec<u8>>, io::Result<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut sealed = callee.answer(stream).await?;
        let mut heard = vec![0; 5];
        sealed.read_exact(&mut heard).await?;
        sealed.write_all(b"there").await?;
        sealed.shutdown().await?;
        Ok(heard)
    });
    let called = call(TcpStream::connect(addr).await.unwrap()).await;
    (answering.await.unwrap(), called)
}

async fn talk(caller: Caller, stream: TcpStream) -> io::Result<Vec<u8>> {
    let mut sealed = caller.call(stream).await?;
    sealed.write_all(b"hello").await?;
    let mut heard = Vec::new();
    sealed.read_to_end(&mut heard).await?;
    Ok(heard)
}

#[tokio::test]
async fn two_of_one_token_hear_each_other() {
    let caller = of(&format!("{TOKEN}\n")).caller("node/b").unwrap();
    let callee = of(TOKEN).callee("control").unwrap();
    let (answered, called) = between(callee, |stream| talk(caller, stream)).await;
    assert_eq!(answered.unwrap(), b"hello");
    assert_eq!(called.unwrap(), b"there");
}

#[tokio::test]
async fn one_of_another_token_is_told_apart_at_both_ends_and_says_nothing() {
    let caller = of("another token, as long as it is")
        .caller("node/b")
        .unwrap();
    let callee = of(TOKEN).callee("control").unwrap();
    let (answered, called) = between(callee, |stream| talk(caller, stream)).await;
    for error in [answered.unwrap_err(), called.unwrap_err()] {
        assert_eq!(unsealed(&error), Some(Unsealed::OtherToken), "{error:?}");
    }
}

#[tokio::test]
async fn a_caller_without_a_certificate_and_one_of_a_role_are_refused() {
    let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let Certified { roots, .. } = of(TOKEN).certify("x").unwrap();
    let without = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(Arc::clone(&roots))
        .with_no_client_auth();
    // What a role has in its environment.
    let role = Authority::of(&[7; 32], "demo")
        .unwrap()
        .issue("role/1")
        .unwrap();
    let certificate = CertificateDer::from_pem_slice(role.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(role.as_bytes()).unwrap();
    let of_a_role = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate], key)
        .unwrap();
    for config in [without, of_a_role] {
        let caller = Caller {
            connector: Arc::new(config).into(),
            name: ServerName::try_from(MEMBER).unwrap(),
        };
        let callee = of(TOKEN).callee("control").unwrap();
        let (answered, called) = between(callee, |stream| talk(caller, stream)).await;
        let error = answered.unwrap_err();
        assert_eq!(unsealed(&error), Some(Unsealed::OtherToken), "{error:?}");
        assert!(called.is_err(), "it heard nothing");
    }
}

#[tokio::test]
async fn who_speaks_no_tls_or_an_older_one_is_named_as_such() {
    let callee = of(TOKEN).callee("control").unwrap();
    let plain = async |mut stream: TcpStream| {
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await?;
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await?;
        Ok(heard)
    };
    let (answered, _) = between(callee, plain).await;
    assert_eq!(unsealed(&answered.unwrap_err()), Some(Unsealed::NoTls));

    let Certified { own, key, roots } = of(TOKEN).certify("node/b").unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let older = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![own], key)
        .unwrap();
    let caller = Caller {
        connector: Arc::new(older).into(),
        name: ServerName::try_from(MEMBER).unwrap(),
    };
    let callee = of(TOKEN).callee("control").unwrap();
    let (answered, called) = between(callee, |stream| talk(caller, stream)).await;
    for error in [answered.unwrap_err(), called.unwrap_err()] {
        assert_eq!(unsealed(&error), Some(Unsealed::NoTls), "{error:?}");
    }
}

#[tokio::test]
async fn a_callee_that_speaks_no_tls_is_named_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // As a server of HTTP/2 begins.
        stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
    });
    let caller = of(TOKEN).caller("node/b").unwrap();
    let error = caller
        .call(TcpStream::connect(addr).await.unwrap())
        .await
        .unwrap_err();
    assert_eq!(unsealed(&error), Some(Unsealed::NoTls), "{error:?}");
    answering.await.unwrap();
}
