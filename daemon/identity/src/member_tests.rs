#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Authority, EngineClient, EngineServer, Term, Unsealed, unsealed};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn authority(secret: &[u8]) -> Authority {
    Authority::of(secret, "demo").unwrap()
}

/// A certificate by the first of these, and the others' certificates.
fn pem(authorities: &[&Authority]) -> String {
    let mut pem = authorities[0].issue("role/1", Term::unbounded()).unwrap();
    for other in &authorities[1..] {
        pem += other.certificate();
    }
    pem
}

/// What a client hears of an engine.
async fn heard(server: &EngineServer, client: &EngineClient) -> io::Result<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = server.clone();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut sealed = server.answer(stream).await?;
        sealed.write_all(b"tokens").await?;
        sealed.shutdown().await
    });
    let mut sealed = client.call(TcpStream::connect(addr).await?).await?;
    let mut heard = Vec::new();
    sealed.read_to_end(&mut heard).await?;
    Ok(heard)
}

#[tokio::test]
async fn members_that_believe_both_authorities_know_each_other_whoever_is_certified_anew_first() {
    let (old, new) = (authority(b"old"), authority(b"new"));
    let (engine, agent) = (pem(&[&old]), pem(&[&old]));
    let (engine, agent) = (Member::from_pem(&engine), Member::from_pem(&agent));
    let (engine, agent) = (engine.unwrap(), agent.unwrap());
    let server = EngineServer::of(&engine).unwrap();
    let client = EngineClient::of_member(&agent).unwrap();
    assert_eq!(heard(&server, &client).await.unwrap(), b"tokens");
    // Trusted first, by the one who asks; then shown by the other.
    agent.renew(&pem(&[&old, &new])).unwrap();
    assert_eq!(heard(&server, &client).await.unwrap(), b"tokens");
    let before = engine.fingerprint();
    engine.renew(&pem(&[&new, &old])).unwrap();
    assert_ne!(engine.fingerprint(), before);
    assert_eq!(heard(&server, &client).await.unwrap(), b"tokens");
    // The old one is dropped; whoever kept something by it is a stranger.
    agent.renew(&pem(&[&new])).unwrap();
    assert_eq!(heard(&server, &client).await.unwrap(), b"tokens");
    let kept = EngineServer::of(&Member::from_pem(&pem(&[&old])).unwrap()).unwrap();
    let refused = heard(&kept, &client).await.unwrap_err();
    assert_eq!(unsealed(&refused), Some(Unsealed::OtherToken), "{refused}");
}

#[tokio::test]
async fn what_cannot_be_used_replaces_nothing() {
    let (ours, theirs) = (authority(b"ours"), authority(b"theirs"));
    let engine = Member::from_pem(&pem(&[&ours])).unwrap();
    let server = EngineServer::of(&engine).unwrap();
    let client = EngineClient::of(ours.certificate()).unwrap();
    let (own, another) = (pem(&[&theirs]), pem(&[&theirs]));
    let key = own.find("-----BEGIN PRIVATE KEY").unwrap();
    let without_key = &own[..key];
    let another_key = another.find("-----BEGIN PRIVATE KEY").unwrap();
    let mixed = [without_key, &another[another_key..]].concat();
    for wrong in ["", "nonsense", without_key, &own[key..], &mixed] {
        assert!(engine.renew(wrong).is_err(), "{wrong}");
    }
    assert_eq!(heard(&server, &client).await.unwrap(), b"tokens");
}

#[tokio::test]
async fn a_client_that_has_no_certificate_believes_others_from_now_on_too() {
    let (old, new) = (authority(b"old"), authority(b"new"));
    let client = EngineClient::of(old.certificate()).unwrap();
    let cloned = client.clone();
    let server = EngineServer::of(&Member::from_pem(&pem(&[&new])).unwrap()).unwrap();
    assert!(heard(&server, &client).await.is_err());
    let both = [old.certificate(), new.certificate()].concat();
    client.believe(&both).unwrap();
    assert_eq!(heard(&server, &cloned).await.unwrap(), b"tokens");
}

#[tokio::test]
async fn a_certificate_of_a_role_is_worth_nothing_after_its_life() {
    let ours = authority(b"ours");
    let now_ms = crate::nodes::tests::now_ms();
    let client = EngineClient::of(ours.certificate()).unwrap();
    let since = |since_ms: u64| {
        let term = Term::of(since_ms, crate::LIFE_OF_ROLE);
        let member = Member::from_pem(&ours.issue("role/1", term).unwrap());
        EngineServer::of(&member.unwrap()).unwrap()
    };
    let life_ms = crate::LIFE_OF_ROLE.as_millis() as u64;
    assert!(
        heard(&since(now_ms - life_ms + 60_000), &client)
            .await
            .is_ok()
    );
    let refused = heard(&since(now_ms - life_ms - 1000), &client)
        .await
        .unwrap_err();
    assert_eq!(
        unsealed(&refused),
        Some(Unsealed::TheirsIsOver),
        "{refused}"
    );
}
