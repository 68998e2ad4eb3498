//! Leader and node on loopback with certificates by an authority of a site, and those whom they do not believe.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::nodes::tests::now_ms;
use crate::{Term, Unsealed, answer_named, unsealed};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    SanType,
};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HOUR: Duration = Duration::from_secs(3600);

/// An authority as a site has one, with one between it and whom it certifies.
struct Site {
    root: CertifiedIssuer<'static, KeyPair>,
    between: CertifiedIssuer<'static, KeyPair>,
}

impl Site {
    fn new() -> Self {
        let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = CertifiedIssuer::self_signed(params.clone(), key()).unwrap();
        params.distinguished_name = Default::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "between");
        let between = CertifiedIssuer::signed_by(params, key(), &root).unwrap();
        Self { root, between }
    }

    fn authority(&self) -> String {
        self.root.pem()
    }

    /// Certificate and key for these URIs, made at `since_ms` and good for an hour.
    fn issue(&self, uris: &[&str], since_ms: u64) -> (String, String) {
        let mut params = CertificateParams::default();
        let uris = uris.iter().map(|uri| (*uri).try_into().unwrap());
        params.subject_alt_names = uris.map(SanType::URI).collect();
        (params.not_before, params.not_after) = Term::of(since_ms, HOUR).dates();
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let own = params.signed_by(&key, &self.between).unwrap();
        (
            [own.pem(), self.between.pem()].concat(),
            key.serialize_pem(),
        )
    }

    fn daemon_since(&self, uri: &str, since_ms: u64) -> Outside {
        let (certificate, key) = self.issue(&[uri], since_ms);
        Outside::of(&certificate, &key, &self.authority()).unwrap()
    }

    fn daemon(&self, uri: &str) -> Outside {
        self.daemon_since(uri, now_ms())
    }
}

/// Whom the one that answers takes the one that calls for, and what that one finds.
async fn between(
    leader: &Outside,
    node: &Outside,
) -> (io::Result<Result<String, OutsideError>>, io::Result<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let answering = async {
        let (stream, _) = listener.accept().await.unwrap();
        let answering = leader.answering();
        let find = |name: &str| (name == OUTSIDE).then_some((answering, ()));
        let ((), mut sealed) = answer_named(stream, find).await?;
        let shown = ShownChain::of_caller(&sealed).unwrap();
        sealed.write_u8(7).await?;
        sealed.flush().await?;
        Ok(leader.node_of(&shown, now_ms()))
    };
    let calling = async {
        let stream = TcpStream::connect(addr).await.unwrap();
        node.caller().call(stream).await?.read_u8().await
    };
    tokio::join!(answering, calling)
}

fn found<T>(of: &io::Result<T>) -> Option<Unsealed> {
    of.as_ref().err().and_then(|error| unsealed(error))
}

#[tokio::test]
async fn a_leader_knows_a_node_by_the_uri_that_its_sites_authority_certified() {
    let site = Site::new();
    for within in ["robust://demo/", "spiffe://site.example/ns/train/demo/"] {
        let leader = site.daemon(&format!("{within}control/a"));
        let node = site.daemon(&format!("{within}node/b"));
        let (known, heard) = between(&leader, &node).await;
        assert_eq!(known.unwrap().unwrap(), "b");
        assert_eq!(heard.unwrap(), 7);
    }
}

#[tokio::test]
async fn an_authority_that_is_not_named_is_believed_by_neither_side() {
    let (site, other) = (Site::new(), Site::new());
    let leader = site.daemon("robust://demo/control/a");
    let node = other.daemon("robust://demo/node/b");
    let (_, heard) = between(&leader, &node).await;
    assert_eq!(found(&heard), Some(Unsealed::OtherToken), "{heard:?}");
    assert_eq!(misnamed(&heard.unwrap_err()), None);
    // The node believes both authorities, the leader its own alone.
    let (certificate, key) = other.issue(&["robust://demo/node/b"], now_ms());
    let both = [other.authority(), site.authority()].concat();
    let node = Outside::of(&certificate, &key, &both).unwrap();
    let (known, heard) = between(&leader, &node).await;
    assert_eq!(found(&known), Some(Unsealed::OtherToken), "{known:?}");
    assert_eq!(found(&heard), Some(Unsealed::OtherToken), "{heard:?}");
}

#[tokio::test]
async fn a_nodes_certificate_cannot_play_the_leader_nor_can_that_of_another_jobs_leader() {
    let site = Site::new();
    let node = site.daemon("robust://demo/node/b");
    for (plays, why) in [
        (
            "robust://demo/node/c",
            "`robust://demo/node/c`, which is not the leader's name",
        ),
        (
            "robust://other/control/a",
            "which belongs not to `robust://demo/node/b`",
        ),
    ] {
        let (_, heard) = between(&site.daemon(plays), &node).await;
        let refused = heard.unwrap_err();
        let said = misnamed(&refused).unwrap();
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn who_shows_a_leaders_certificate_or_one_of_another_job_is_no_node() {
    let site = Site::new();
    let leader = site.daemon("spiffe://site/demo/control/a");
    let of_leader = site.daemon("spiffe://site/demo/control/z");
    let (known, _) = between(&leader, &of_leader).await;
    let refused = known.unwrap().unwrap_err();
    assert!(matches!(refused, OutsideError::NoNode { .. }), "{refused}");
    // It calls without looking at whom: its own verifier would refuse the leader of another job.
    let (certificate, _) = site.issue(&["spiffe://site/other/node/b"], now_ms());
    let chain = ShownChain(pem::certificates(&certificate).unwrap());
    let refused = leader.node_of(&chain, now_ms()).unwrap_err();
    assert!(
        matches!(refused, OutsideError::Elsewhere { .. }),
        "{refused}"
    );
    let (certificate, _) = site.issue(&["https://site/node/b"], now_ms());
    let chain = ShownChain(pem::certificates(&certificate).unwrap());
    let refused = leader.node_of(&chain, now_ms()).unwrap_err();
    assert!(refused.to_string().contains("https://site/node/b"));
}

#[tokio::test]
async fn a_certificate_that_is_over_opens_nothing_and_one_that_was_shown_in_time_does_not_outlive_itself()
 {
    let site = Site::new();
    let old = now_ms() - 7_200_000;
    let (leader, node) = (
        site.daemon("robust://demo/control/a"),
        site.daemon_since("robust://demo/node/b", old),
    );
    let (known, heard) = between(&leader, &node).await;
    assert_eq!(found(&known), Some(Unsealed::TheirsIsOver), "{known:?}");
    assert_eq!(found(&heard), Some(Unsealed::OursIsOver), "{heard:?}");
    let leader_before = site.daemon_since("robust://demo/control/a", old);
    let (_, heard) = between(&leader_before, &site.daemon("robust://demo/node/b")).await;
    assert_eq!(found(&heard), Some(Unsealed::TheirsIsOver), "{heard:?}");
    let (certificate, _) = site.issue(&["robust://demo/node/b"], old);
    let chain = ShownChain(pem::certificates(&certificate).unwrap());
    assert_eq!(leader.node_of(&chain, old).unwrap(), "b");
    let refused = leader.node_of(&chain, now_ms()).unwrap_err();
    assert!(matches!(refused, OutsideError::Unbelieved(_)), "{refused}");
}

#[test]
fn files_that_are_halves_of_each_other_or_name_nobody_are_refused_with_what_is_wrong() {
    let site = Site::new();
    let (certificate, key) = site.issue(&["robust://demo/node/b"], now_ms());
    let (_, other) = site.issue(&["robust://demo/node/b"], now_ms());
    let authority = site.authority();
    let half = &certificate[..certificate.len() / 4];
    for (certificate, key, authority, why) in [
        (half, key.as_str(), authority.as_str(), "no certificate"),
        ("", &key, &authority, "no certificate"),
        (&certificate, "", &authority, "no key"),
        (&certificate, &key, "", "no authority"),
        (&certificate, &other, &authority, "not that of the cert"),
    ] {
        let refused = Outside::of(certificate, key, authority).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    for uris in [
        [].as_slice(),
        &["https://demo/node/b"],
        &["robust://demo/node/b", "robust://demo/control/b"],
    ] {
        let (certificate, key) = site.issue(uris, now_ms());
        let refused = Outside::of(&certificate, &key, &authority).unwrap_err();
        let said = refused.to_string();
        assert!(matches!(refused, OutsideError::Unnamed { .. }), "{said}");
        assert!(said.contains(uris.last().unwrap_or(&"no URI")), "{said}");
    }
}

#[test]
fn a_daemons_name_ends_with_what_it_is_and_how_it_is_called() {
    for uri in [
        "robust://demo/node/b",
        "robust://demo/control/a",
        "spiffe://site.example/node/b",
        "spiffe://site.example/ns/x/node/b",
    ] {
        assert_eq!(DaemonName::of(uri).unwrap().to_string(), uri);
    }
    for uri in [
        "robust://demo/role/17",
        "robust://demo/x/node/b",
        "robust://node/b",
        "robust://demo/node/",
        "robust://demo/node/b?c",
        "spiffe://site.example/b",
        "spiffe:///node/b",
        "spiffe://site.example/node//b",
        "https://demo/node/b",
        "demo/node/b",
        "",
    ] {
        assert_eq!(DaemonName::of(uri), None, "{uri}");
    }
}
