//! Nodes with certificates by an authority of the site, which the leader did not make.
use super::is_whole;
use crate::cluster::{Cluster, pids};
use crate::issuer::{self, SiteAuthority};
use robust_identity::Fingerprint;
use robust_proto::v1;
use robust_proto::v1::revoke_join_request::What;
use std::time::{Duration, Instant};

/// What a daemon is called in its certificate.
fn uri(daemon: &str) -> String {
    match daemon {
        "a" => "spiffe://site.example/demo/control/a".to_owned(),
        node => format!("spiffe://site.example/demo/node/{node}"),
    }
}

impl Cluster {
    /// Makes or replaces the files of a daemon; its certificate's fingerprint.
    fn certify(&self, site: &SiteAuthority, daemon: &str) -> String {
        let folder = self.file(&format!("certificates-{daemon}"));
        let certificate = site.write(&folder, &uri(daemon));
        Fingerprint::of_pem(&certificate).unwrap().to_string()
    }

    /// The options by which a daemon shows the files of this one.
    fn shows(&self, daemon: &str) -> Vec<String> {
        let files = issuer::files(&self.file(&format!("certificates-{daemon}")));
        let named = ["--certificate", "--key", "--authority"].into_iter();
        let named = named.zip(files.map(|path| path.display().to_string()));
        named
            .flat_map(|(option, path)| [option.to_owned(), path])
            .collect()
    }

    fn lead_from_outside(&mut self) {
        let shows = self.shows("a");
        let mut args: Vec<&str> = shows.iter().map(String::as_str).collect();
        args.push("--single-use-tokens");
        self.lead_with(&args);
    }

    /// Starts `node`, which shows the files of `of`, and joins by this name.
    fn join_from_outside(&mut self, node: &str, of: &str, name: &[&str]) {
        let shows = self.shows(of);
        let args: Vec<&str> = shows.iter().map(String::as_str).collect();
        self.join_bare(node, &[&args, name].concat());
    }

    fn until_log(&self, node: &str, what: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.log(node).contains(what) {
            assert!(Instant::now() < deadline, "no {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[tokio::test]
async fn nodes_join_with_certificates_from_outside_which_are_replaced_while_the_job_runs() {
    let mut cluster = Cluster::new(1000);
    let first = SiteAuthority::new();
    let [_, of_b, _] = ["a", "b", "c"].map(|daemon| cluster.certify(&first, daemon));
    cluster.lead_from_outside();
    cluster.join_from_outside("b", "b", &["--name", "b"]);
    // One finds its name in its certificate, and both do without a token.
    cluster.join_from_outside("c", "c", &[]);
    let before = cluster.wait_for("everybody", is_whole).await;
    let shown = |of: &str| format!("certificate from outside: {of}");
    cluster.until_log("a", &shown(&of_b));
    assert!(!cluster.file("state-b/node-key.json").exists());
    // Another name than the certificate's.
    cluster.join_from_outside("d", "b", &["--name", "d", "--pools", "rollout=1"]);
    assert_eq!(cluster.end_of("d"), 2, "{}", cluster.log("d"));
    let said = cluster.log("d");
    assert!(said.contains("is that of node `b`"), "{said}");
    assert!(said.contains("joins as `d`"), "{said}");
    // The whole authority is another one. The leader, which goes on, believes a node by it that comes anew.
    let second = SiteAuthority::new();
    let [_, of_b, of_c] = ["a", "b", "c"].map(|daemon| cluster.certify(&second, daemon));
    cluster.kill("b");
    cluster.join_from_outside("b", "b", &["--name", "b"]);
    cluster.until_log("a", &shown(&of_b));
    assert!(cluster.log("a").contains("was read again"));
    // And a node that goes on shows its new one with its next connection.
    assert!(!cluster.log("a").contains(&of_c));
    cluster.kill("a");
    cluster.lead_from_outside();
    cluster.until_log("a", &shown(&of_c));
    let step = before.step;
    let after = cluster
        .wait_for("more steps", |s| s.step > step + 2 && is_whole(s))
        .await;
    assert_eq!(pids(&before), pids(&after), "{}", cluster.logs());
}

#[tokio::test]
async fn a_node_from_outside_that_is_taken_back_is_out_until_a_token_is_made_for_it() {
    let mut cluster = Cluster::new(1000);
    let site = SiteAuthority::new();
    for daemon in ["a", "c"] {
        cluster.certify(&site, daemon);
    }
    cluster.lead_from_outside();
    // The other way goes on beside it.
    cluster.token("b", "token-b").await;
    cluster.join_with("b", "token-b", &["--name", "b"]);
    cluster.join_from_outside("c", "c", &[]);
    cluster.wait_for("second step", |s| s.step >= 2).await;
    let mut control = cluster.control().await.unwrap();
    let what = Some(What::Node("c".to_owned()));
    let revoked = control.revoke_join(v1::RevokeJoinRequest { what }).await;
    revoked.unwrap();
    let lost = |s: &v1::Status| s.incidents.iter().any(|i| i.rule == "node lost");
    cluster.wait_for("the loss of c", lost).await;
    cluster.until_log("c", "taken back");
    // Neither with the same certificate nor with another, and the leader has it on disk.
    cluster.kill("c");
    cluster.certify(&site, "c");
    cluster.join_from_outside("c", "c", &[]);
    assert_eq!(cluster.end_of("c"), 7, "{}", cluster.log("c"));
    let said = cluster.log("c");
    assert!(said.contains("token create --node c"), "{said}");
    cluster.kill("a");
    cluster.lead_from_outside();
    cluster.wait_for("the leader", |s| s.step > 0).await;
    cluster.join_from_outside("c", "c", &[]);
    assert_eq!(cluster.end_of("c"), 7, "{}", cluster.log("c"));
    cluster.token("c", "token-c").await;
    cluster.join_from_outside("c", "c", &[]);
    cluster.wait_for("everybody", is_whole).await;
}

#[tokio::test]
async fn a_nodes_certificate_makes_no_leader_and_one_by_another_authority_no_node() {
    let mut cluster = Cluster::new(1000);
    let site = SiteAuthority::new();
    for daemon in ["a", "b"] {
        cluster.certify(&site, daemon);
    }
    cluster.certify(&SiteAuthority::new(), "c");
    // A leader is not even started with it.
    let shows = cluster.shows("b");
    let shows: Vec<&str> = shows.iter().map(String::as_str).collect();
    cluster.lead_with(&shows);
    assert_eq!(cluster.end_of("a"), 2, "{}", cluster.log("a"));
    // Neither does a node take it that listens where the leader does.
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", cluster.port())).await;
    let listener = listener.unwrap();
    let text = |path| std::fs::read_to_string(path).unwrap();
    let [certificate, key, authority] = issuer::files(&cluster.file("certificates-b")).map(text);
    let plays = robust_identity::Outside::of(&certificate, &key, &authority).unwrap();
    cluster.join_from_outside("b", "b", &[]);
    let (stream, _) = listener.accept().await.unwrap();
    let answering = plays.answering();
    let answered = robust_identity::answer_named(stream, |_| Some((answering, ()))).await;
    assert!(answered.is_err(), "nobody believes it");
    drop(listener);
    assert_eq!(cluster.end_of("b"), 7, "{}", cluster.log("b"));
    let said = cluster.log("b");
    assert!(said.contains("demo/node/b`, which is not the"), "{said}");
    cluster.lead_from_outside();
    cluster.token("b", "token-b").await;
    cluster.join_from_outside("c", "c", &[]);
    assert_eq!(cluster.end_of("c"), 7, "{}", cluster.log("c"));
    let said = cluster.log("c");
    assert!(said.contains("do not believe each other's"), "{said}");
}
