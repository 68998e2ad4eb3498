//! Both sides on loopback, and those who are not of the job.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Holders, Unsealed, answer_named, unsealed};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap().as_millis() as u64
}

fn of(secret: &str) -> NodeAuthority {
    NodeAuthority::of(secret).unwrap()
}

/// A node that this leader certified, and its certificate's fingerprint.
fn node(leader: &NodeAuthority, name: &str) -> (Caller, Fingerprint) {
    node_since(leader, name, now_ms())
}

fn node_since(leader: &NodeAuthority, name: &str, since_ms: u64) -> (Caller, Fingerprint) {
    let key = NodeKey::new().unwrap();
    let certificate = leader.certify(key.public(), name, since_ms).unwrap();
    // As it is after the node's daemon was started again.
    let key = NodeKey::from_pem(&key.pem()).unwrap();
    (
        key.caller(&certificate.pem).unwrap(),
        certificate.fingerprint,
    )
}

/// Who was heard and what, and what whoever called heard: each finds it at its own end.
async fn between<T, F: Future<Output = io::Result<T>>>(
    leader: &NodeAuthority,
    call: impl FnOnce(TcpStream) -> F,
) -> (io::Result<(Fingerprint, Vec<u8>)>, io::Result<T>) {
    between_since(leader, now_ms(), call).await
}

/// The same, of a leader that made its own certificate at `since_ms`.
async fn between_since<T, F: Future<Output = io::Result<T>>>(
    leader: &NodeAuthority,
    since_ms: u64,
    call: impl FnOnce(TcpStream) -> F,
) -> (io::Result<(Fingerprint, Vec<u8>)>, io::Result<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let answering = leader.answering(since_ms).unwrap();
    let answering = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let ((), mut sealed) = answer_named(stream, |_| Some((answering, ()))).await?;
        let caller = Fingerprint::of_caller(&sealed).unwrap();
        let mut heard = vec![0; 5];
        sealed.read_exact(&mut heard).await?;
        sealed.write_all(b"there").await?;
        sealed.shutdown().await?;
        Ok((caller, heard))
    });
    let called = call(TcpStream::connect(addr).await.unwrap()).await;
    (answering.await.unwrap(), called)
}

/// One that believes these, and shows this of itself.
fn showing(
    roots: &Arc<RootCertStore>,
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Caller {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(Arc::clone(roots));
    let config = match own {
        Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
        None => config.with_no_client_auth(),
    };
    Caller {
        connector: Arc::new(config).into(),
        name: ServerName::try_from(MEMBER).unwrap(),
    }
}

fn certified(leader: &NodeAuthority, whose: &str) -> Certified {
    Certified::by(&leader.authority, (whose, MEMBER), Term::unbounded()).unwrap()
}

async fn talk(caller: Caller, stream: TcpStream) -> io::Result<Vec<u8>> {
    let mut sealed = caller.call(stream).await?;
    sealed.write_all(b"hello").await?;
    let mut heard = Vec::new();
    sealed.read_to_end(&mut heard).await?;
    Ok(heard)
}

#[tokio::test]
async fn a_leader_knows_each_node_that_it_certified_by_its_certificate() {
    let leader = of(SECRET);
    let ((b, of_b), (_, of_c)) = (node(&leader, "b"), node(&leader, "c"));
    assert_ne!(of_b, of_c);
    // Started again, the leader has the same authority.
    let leader = of(&format!("{SECRET}\n"));
    let (answered, called) = between(&leader, |stream| talk(b, stream)).await;
    assert_eq!(answered.unwrap(), (of_b, b"hello".to_vec()));
    assert_eq!(called.unwrap(), b"there");
}

/// As a node of the build before calls, which knows of no names of authorities.
#[tokio::test]
async fn a_node_is_answered_by_whatever_name_it_calls_a_member_of_the_job() {
    let leader = of(SECRET);
    let old = certified(&leader, "node/b").caller(MEMBER, MEMBER).unwrap();
    let (answered, called) = between(&leader, |stream| talk(old, stream)).await;
    assert!(answered.is_ok());
    assert_eq!(called.unwrap(), b"there");
    assert_ne!(leader.name(), of("another secret").name());
}

#[tokio::test]
async fn a_certificate_that_is_over_or_not_good_yet_is_named_as_such_at_both_ends() {
    let leader = of(SECRET);
    let life_ms = LIFE_OF_NODE.as_millis() as u64;
    for since_ms in [now_ms() - life_ms - 1000, now_ms() + 2 * 3_600_000] {
        let (late, _) = node_since(&leader, "b", since_ms);
        let (answered, called) = between(&leader, |stream| talk(late, stream)).await;
        let (answered, called) = (answered.unwrap_err(), called.unwrap_err());
        assert_eq!(
            unsealed(&answered),
            Some(Unsealed::TheirsIsOver),
            "{answered:?}"
        );
        assert_eq!(unsealed(&called), Some(Unsealed::OursIsOver), "{called:?}");
        let (good, _) = node(&leader, "b");
        let (answered, called) =
            between_since(&leader, since_ms, |stream| talk(good, stream)).await;
        let (answered, called) = (answered.unwrap_err(), called.unwrap_err());
        assert_eq!(
            unsealed(&answered),
            Some(Unsealed::OursIsOver),
            "{answered:?}"
        );
        assert_eq!(
            unsealed(&called),
            Some(Unsealed::TheirsIsOver),
            "{called:?}"
        );
    }
    // Clocks that differ by some minutes are no reason.
    let (ahead, _) = node_since(&leader, "b", now_ms() + 50 * 60_000);
    let (answered, _) = between(&leader, |stream| talk(ahead, stream)).await;
    assert!(answered.is_ok());
}

#[tokio::test]
async fn a_node_of_another_leader_is_told_apart_at_both_ends_and_says_nothing() {
    let (stranger, _) = node(&of("another secret, as long as it is"), "b");
    let (answered, called) = between(&of(SECRET), |stream| talk(stranger, stream)).await;
    for error in [answered.unwrap_err(), called.unwrap_err()] {
        assert_eq!(unsealed(&error), Some(Unsealed::OtherToken), "{error:?}");
    }
}

/// With its own certificate as an authority a node could make itself another one, or the leader.
#[tokio::test]
async fn a_node_can_certify_nobody() {
    let leader = of(SECRET);
    let key = NodeKey::new().unwrap();
    let own = leader.certify(key.public(), "b", now_ms()).unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let name = &mut params.distinguished_name;
    name.push(rcgen::DnType::CommonName, "node/b");
    let issuer = rcgen::Issuer::new(params, KeyPair::from_pem(&key.pem()).unwrap());
    let another = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let params = rcgen::CertificateParams::new(vec![MEMBER.to_owned()]).unwrap();
    let forged = params.signed_by(&another, &issuer).unwrap();
    let chain = [forged.pem(), own.pem.clone(), another.serialize_pem()].concat();
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap();
    let roots = Certified::from_pem(&[own.pem, key.pem()].concat());
    let roots = roots.unwrap().roots;
    let key = PrivateKeyDer::from_pem_slice(chain.as_bytes()).unwrap();
    let caller = showing(&roots, Some((certificates[..2].to_vec(), key)));
    let (answered, called) = between(&leader, |stream| talk(caller, stream)).await;
    let error = answered.unwrap_err();
    assert_eq!(unsealed(&error), Some(Unsealed::OtherToken), "{error:?}");
    assert!(called.is_err(), "it heard nothing");
}

#[tokio::test]
async fn a_caller_without_a_certificate_and_one_of_a_role_are_refused() {
    let leader = of(SECRET);
    let Certified { roots, .. } = certified(&leader, "x");
    // What a role has in its environment.
    let role = Authority::of(&[7; 32], "demo")
        .unwrap()
        .issue("role/1", Term::unbounded())
        .unwrap();
    let certificate = CertificateDer::from_pem_slice(role.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(role.as_bytes()).unwrap();
    for shown in [None, Some((vec![certificate], key))] {
        let caller = showing(&roots, shown);
        let (answered, called) = between(&leader, |stream| talk(caller, stream)).await;
        let error = answered.unwrap_err();
        assert_eq!(unsealed(&error), Some(Unsealed::OtherToken), "{error:?}");
        assert!(called.is_err(), "it heard nothing");
    }
}

#[tokio::test]
async fn who_has_a_join_token_alone_is_no_node() {
    let holder = Holders::of(SECRET).unwrap().caller().unwrap();
    let (answered, called) = between(&of(SECRET), |stream| talk(holder, stream)).await;
    for error in [answered.unwrap_err(), called.unwrap_err()] {
        assert_eq!(unsealed(&error), Some(Unsealed::OtherToken), "{error:?}");
    }
}

#[tokio::test]
async fn who_speaks_no_tls_or_an_older_one_is_named_as_such() {
    let leader = of(SECRET);
    let plain = async |mut stream: TcpStream| {
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await?;
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await?;
        Ok(heard)
    };
    let (answered, _) = between(&leader, plain).await;
    assert_eq!(unsealed(&answered.unwrap_err()), Some(Unsealed::NoTls));

    let Certified { chain, key, roots } = certified(&leader, "node/b");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let older = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let caller = Caller {
        connector: Arc::new(older).into(),
        name: ServerName::try_from(MEMBER).unwrap(),
    };
    let (answered, called) = between(&leader, |stream| talk(caller, stream)).await;
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
    let (caller, _) = node(&of(SECRET), "b");
    let error = caller
        .call(TcpStream::connect(addr).await.unwrap())
        .await
        .unwrap_err();
    assert_eq!(unsealed(&error), Some(Unsealed::NoTls), "{error:?}");
    answering.await.unwrap();
}

#[test]
fn a_key_of_another_kind_is_not_certified() {
    for wrong in [&b""[..], &[1; 31], &[1; 64]] {
        assert!(of(SECRET).certify(wrong, "b", now_ms()).is_err());
    }
}
