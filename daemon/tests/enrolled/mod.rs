//! How machines become nodes, stay nodes, and are none any more.
mod outside;

use crate::cluster::{Cluster, pids};
use robust_identity::{LIFE_OF_NODE, NodeAuthority, NodeKey};
use robust_proto::v1;
use robust_proto::v1::revoke_join_request::What;
use std::time::{Duration, Instant};
use tonic::Code;

impl Cluster {
    /// Makes a token for one machine, and a file of it; its id.
    async fn token(&self, node: &str, file: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let request = v1::CreateJoinTokenRequest {
                node: node.to_owned(),
                ttl_s: 600,
            };
            if let Some(mut control) = self.control().await
                && let Ok(created) = control.create_join_token(request).await
            {
                let created = created.into_inner();
                std::fs::write(self.file(file), created.token).unwrap();
                return created.id;
            }
            assert!(Instant::now() < deadline, "no token\n{}", self.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn joins(&self) -> v1::ListJoinsReply {
        let mut control = self.control().await.unwrap();
        let all = control.list_joins(v1::ListJoinsRequest {}).await;
        all.unwrap().into_inner()
    }
}

/// Steps are made, and each of the seven roles has a process; a leader that was just started knows none yet.
fn is_whole(status: &v1::Status) -> bool {
    status.step >= 2 && status.roles.iter().filter(|r| r.pid > 0).count() == 7
}

#[tokio::test]
async fn each_machine_becomes_a_node_with_a_token_of_its_own_and_stays_one_without() {
    let mut cluster = Cluster::new(1000);
    cluster.lead_with(&["--single-use-tokens"]);
    let of_b = cluster.token("b", "token-b").await;
    cluster.token("", "token-c").await;
    cluster.join_with("b", "token-b", &["--name", "b"]);
    cluster.join_with("c", "token-c", &["--name", "c"]);
    let before = cluster.wait_for("everybody", is_whole).await;
    assert!(!cluster.file("state-a/nodes.token").exists());
    // Somebody has read a token, which was used; and one for a node makes no other.
    for (token, name) in [("token-c", "d"), ("token-b", "d")] {
        cluster.join_with("d", token, &["--name", name, "--pools", "rollout=1"]);
        assert_eq!(cluster.end_of("d"), 7, "{}", cluster.log("d"));
    }
    let said = cluster.log("d");
    assert!(said.contains("was used by another machine"), "{said}");
    assert!(said.contains("is for node `b`"), "{said}");
    // Both sides are started again, and a token is needed nowhere.
    cluster.kill("a");
    cluster.kill("b");
    cluster.lead_with(&["--single-use-tokens"]);
    // With the file that its unit names, and without any.
    std::fs::remove_file(cluster.file("token-b")).unwrap();
    cluster.join_with("b", "token-b", &["--name", "b"]);
    cluster.kill("c");
    cluster.join_again("c");
    let step = before.step;
    let after = cluster
        .wait_for("more steps", |s| s.step > step + 2 && is_whole(s))
        .await;
    assert_eq!(pids(&before), pids(&after), "{}", cluster.logs());
    let deadline = Instant::now() + Duration::from_secs(60);
    let all = loop {
        let all = cluster.joins().await;
        let names = all.nodes.iter().map(|n| (n.name.as_str(), n.joined));
        if names.eq([("b", true), ("c", true)]) {
            break all;
        }
        assert!(Instant::now() < deadline, "{all:?}\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let used = all.tokens.iter().find(|t| t.id == of_b).unwrap();
    assert_eq!(used.used_by, "b");
    assert!(cluster.log("d").contains("token create"));
}

/// A stranger, or another job's leader, at the address of the node's own: what the node has proves nothing to it.
#[tokio::test]
async fn a_node_that_met_a_stranger_at_its_leaders_address_comes_back_with_its_certificate() {
    let mut cluster = Cluster::new(1000);
    cluster.lead_with(&["--single-use-tokens"]);
    for (node, token) in [("b", "token-b"), ("c", "token-c")] {
        cluster.token(node, token).await;
        cluster.join_with(node, token, &["--name", node]);
    }
    let before = cluster.wait_for("everybody", is_whole).await;
    cluster.kill("a");
    let stranger = NodeAuthority::of("another leader's secret").unwrap();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", cluster.port())).await;
    let listener = listener.unwrap();
    for _ in 0..8 {
        let (stream, _) = listener.accept().await.unwrap();
        let answering = stranger.answering(robustd::nodes::unix_ms()).unwrap();
        let answered = robust_identity::answer_named(stream, |_| Some((answering, ()))).await;
        assert!(answered.is_err(), "nobody believes it");
    }
    drop(listener);
    cluster.lead_with(&["--single-use-tokens"]);
    let step = before.step;
    let after = cluster
        .wait_for("more steps", |s| s.step > step + 2 && is_whole(s))
        .await;
    assert_eq!(pids(&before), pids(&after), "{}", cluster.logs());
}

#[tokio::test]
async fn a_node_whose_certificate_is_taken_back_is_out_at_once_and_the_job_goes_on() {
    let mut cluster = Cluster::new(1000);
    cluster.lead_with(&["--single-use-tokens"]);
    for (node, token) in [("b", "token-b"), ("c", "token-c")] {
        cluster.token(node, token).await;
        cluster.join_with(node, token, &["--name", node]);
    }
    cluster.wait_for("second step", |s| s.step >= 2).await;
    let mut control = cluster.control().await.unwrap();
    let what = Some(What::Node("c".to_owned()));
    control
        .revoke_join(v1::RevokeJoinRequest { what })
        .await
        .unwrap();
    let lost = |s: &v1::Status| s.incidents.iter().any(|i| i.rule == "node lost");
    let status = cluster.wait_for("the loss of c", lost).await;
    let step = status.step;
    cluster.wait_for("more steps", |s| s.step > step + 2).await;
    assert!(
        cluster.log("c").contains("taken back"),
        "{}",
        cluster.log("c")
    );
    // With the token that it had it becomes no node again.
    cluster.kill("c");
    cluster.join_with("c", "token-c", &["--name", "c"]);
    assert_eq!(cluster.end_of("c"), 7, "{}", cluster.log("c"));
    let what = Some(What::Node("c".to_owned()));
    let refused = control.revoke_join(v1::RevokeJoinRequest { what }).await;
    assert_eq!(refused.unwrap_err().code(), Code::NotFound);
}

impl Cluster {
    async fn authority(&self) -> v1::AuthorityReply {
        let mut control = self.control().await.unwrap();
        let shown = control.show_authority(v1::ShowAuthorityRequest {}).await;
        shown.unwrap().into_inner()
    }

    async fn rotate(&self, now: bool) -> Result<v1::AuthorityReply, tonic::Status> {
        let mut control = self.control().await.unwrap();
        let request = v1::RotateAuthorityRequest { now };
        Ok(control.rotate_authority(request).await?.into_inner())
    }

    /// Waits until the authority and those whom it certified are as wanted.
    async fn until_authority(
        &self,
        what: &str,
        when: impl Fn(&v1::AuthorityReply) -> bool,
    ) -> v1::AuthorityReply {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let shown = self.authority().await;
            if when(&shown) {
                return shown;
            }
            assert!(
                Instant::now() < deadline,
                "no {what}: {shown:#?}\n{}",
                self.logs()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// One authority is left, and all nodes and roles are certified by it.
fn is_over(shown: &v1::AuthorityReply) -> bool {
    let by_it = |c: &v1::Certified| c.authority == shown.name;
    shown.stage.is_empty() && shown.certified.len() == 9 && shown.certified.iter().all(by_it)
}

#[tokio::test]
async fn the_leaders_secret_is_replaced_while_the_job_runs_and_no_role_is_started_anew() {
    let mut cluster = Cluster::new(1000);
    cluster.lead_with(&["--single-use-tokens"]);
    for (node, token) in [("b", "token-b"), ("c", "token-c")] {
        cluster.token(node, token).await;
        cluster.join_with(node, token, &["--name", node]);
    }
    let before = cluster.wait_for("everybody", is_whole).await;
    let first = cluster.until_authority("certificates", is_over).await;
    let secret = std::fs::read_to_string(cluster.file("state-a/authority.key")).unwrap();
    cluster.rotate(false).await.unwrap();
    let second = cluster
        .until_authority("end of the rotation", is_over)
        .await;
    assert_ne!(first.name, second.name);
    let key = cluster.file("state-a/authority.key");
    assert_ne!(std::fs::read_to_string(&key).unwrap(), secret);
    assert!(!cluster.file("state-a/authority.before.key").exists());
    let step = before.step;
    let after = cluster
        .wait_for("more steps", |s| s.step > step + 2 && is_whole(s))
        .await;
    assert_eq!(pids(&before), pids(&after), "{}", cluster.logs());
    assert!(after.incidents.is_empty(), "{:?}", after.incidents);
    // Both are let in by what they have now, and a leader that is started again knows them.
    cluster.kill("a");
    cluster.kill("b");
    cluster.lead_with(&["--single-use-tokens"]);
    cluster.join_again("b");
    let step = after.step;
    let again = cluster
        .wait_for("more steps", |s| s.step > step + 2 && is_whole(s))
        .await;
    assert_eq!(pids(&before), pids(&again), "{}", cluster.logs());
    let third = cluster.until_authority("certificates", is_over).await;
    assert_eq!(third.name, second.name);
}

#[tokio::test]
async fn a_rotation_waits_for_a_node_that_is_away_over_the_leaders_death_until_it_is_left_behind() {
    let mut cluster = Cluster::new(1000);
    cluster.lead_with(&["--single-use-tokens"]);
    for (node, token) in [("b", "token-b"), ("c", "token-c")] {
        cluster.token(node, token).await;
        cluster.join_with(node, token, &["--name", node]);
    }
    cluster.wait_for("everybody", is_whole).await;
    cluster.kill("c");
    let first = cluster.authority().await;
    cluster.rotate(false).await.unwrap();
    let refused = cluster.rotate(false).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("--now"), "{refused}");
    cluster.kill("a");
    cluster.lead_with(&["--single-use-tokens"]);
    cluster.wait_for("the leader", |s| s.step > 0).await;
    let waits = |shown: &v1::AuthorityReply| {
        let waited = shown.certified.iter().filter(|c| c.waited_for);
        let waited: Vec<_> = waited.map(|c| c.name.as_str()).collect();
        shown.before == first.name && shown.stage == "certifying" && waited == ["c"]
    };
    cluster.until_authority("wait for c alone", waits).await;
    // It comes back with what it has, and the rotation ends.
    cluster.join_again("c");
    let is_alone = |shown: &v1::AuthorityReply| shown.stage.is_empty();
    cluster
        .until_authority("end of the rotation", is_alone)
        .await;
    cluster.wait_for("everybody", is_whole).await;
    // Once more, and nobody waits for it.
    cluster.kill("c");
    cluster.rotate(false).await.unwrap();
    cluster.rotate(true).await.unwrap();
    let shown = cluster
        .until_authority("end of the rotation", is_alone)
        .await;
    assert!(
        shown
            .certified
            .iter()
            .all(|c| c.kind != "node" || c.name != "c"),
        "{shown:?}"
    );
    cluster.join_again("c");
    let told = Instant::now() + Duration::from_secs(60);
    while !cluster
        .log("c")
        .contains("give a join token with --token-file")
    {
        assert!(Instant::now() < told, "{}", cluster.log("c"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = cluster.rotate(true).await.unwrap_err();
    assert!(
        refused.message().contains("not being replaced"),
        "{refused}"
    );
}

/// The fingerprint of each node's certificate, by its name.
fn fingerprints(all: &v1::ListJoinsReply) -> Vec<(String, String)> {
    let nodes = all.nodes.iter();
    nodes
        .map(|n| (n.name.clone(), n.fingerprint.clone()))
        .collect()
}

#[tokio::test]
async fn a_certificate_whose_life_is_half_over_is_made_anew_while_the_job_runs() {
    let mut cluster = Cluster::new(1000);
    cluster.lead_with(&["--single-use-tokens"]);
    for (node, token) in [("b", "token-b"), ("c", "token-c")] {
        cluster.token(node, token).await;
        cluster.join_with(node, token, &["--name", node]);
    }
    let before = cluster.wait_for("everybody", is_whole).await;
    let had = fingerprints(&cluster.joins().await);
    // Of an earlier build, whose certificates said nothing of their life.
    let path = cluster.file("state-b/node-key.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut stored: serde_json::Value = serde_json::from_str(&text).unwrap();
    let fields = stored.as_object_mut().unwrap();
    assert!(fields.remove("since_ms").is_some() && fields.remove("until_ms").is_some());
    cluster.kill("b");
    std::fs::write(&path, stored.to_string()).unwrap();
    cluster.join_again("b");
    let deadline = Instant::now() + Duration::from_secs(60);
    let has = loop {
        let all = cluster.joins().await;
        let has = fingerprints(&all);
        if has[0] != had[0] && all.nodes[0].joined {
            break has;
        }
        assert!(Instant::now() < deadline, "{all:?}\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(has[1], had[1], "that of c is young");
    let step = before.step;
    let after = cluster
        .wait_for("more steps", |s| s.step > step + 2 && is_whole(s))
        .await;
    assert_eq!(pids(&before), pids(&after), "{}", cluster.logs());
    // By the new one it is let in again.
    cluster.kill("b");
    cluster.join_again("b");
    let step = after.step;
    let again = cluster
        .wait_for("more steps", |s| s.step > step + 2 && is_whole(s))
        .await;
    assert_eq!(pids(&before), pids(&again), "{}", cluster.logs());
    assert_eq!(fingerprints(&cluster.joins().await), has);
}

#[tokio::test]
async fn a_node_whose_certificate_is_over_is_told_so_and_comes_back_with_a_token() {
    let mut cluster = Cluster::new(1000);
    cluster.lead_with(&["--single-use-tokens"]);
    for (node, token) in [("b", "token-b"), ("c", "token-c")] {
        cluster.token(node, token).await;
        cluster.join_with(node, token, &["--name", node]);
    }
    let before = cluster.wait_for("everybody", is_whole).await;
    cluster.kill("b");
    // As if it had been off since.
    let secret = std::fs::read_to_string(cluster.file("state-a/authority.key")).unwrap();
    let (leader, key) = (NodeAuthority::of(&secret).unwrap(), NodeKey::new().unwrap());
    let begun_ms = robustd::nodes::unix_ms() - LIFE_OF_NODE.as_millis() as u64 - 1000;
    let made = leader.certify(key.public(), "b", begun_ms).unwrap();
    let stored = serde_json::json!({
        "name": "b",
        "key": key.pem(),
        "certificates": made.pem,
        "since_ms": made.since_ms,
        "until_ms": made.until_ms,
    });
    let path = cluster.file("state-b/node-key.json");
    std::fs::write(path, stored.to_string()).unwrap();
    cluster.join_again("b");
    assert_eq!(cluster.end_of("b"), 7, "{}", cluster.log("b"));
    let said = cluster.log("b");
    assert!(said.contains("certificate has expired"), "{said}");
    assert!(said.contains("robustctl token create"), "{said}");
    let refused = cluster.log("a");
    assert!(refused.contains("compare the clocks"), "{refused}");
    cluster.token("b", "another-token").await;
    cluster.join_with("b", "another-token", &["--name", "b"]);
    let step = before.step;
    let after = cluster
        .wait_for("more steps", |s| s.step > step + 2 && is_whole(s))
        .await;
    assert_eq!(pids(&before), pids(&after), "{}", cluster.logs());
}

#[tokio::test]
async fn a_leader_that_lost_its_secret_is_joined_again_by_nodes_that_have_a_token() {
    let mut cluster = crate::three(1000);
    let before = cluster.wait_for("everybody", is_whole).await;
    cluster.kill("a");
    for file in ["authority.key", "joins.json"] {
        std::fs::remove_file(cluster.file("state-a").join(file)).unwrap();
    }
    cluster.lead();
    let step = before.step;
    let after = cluster
        .wait_for("more steps", |s| s.step > step + 2 && is_whole(s))
        .await;
    assert_eq!(pids(&before), pids(&after), "{}", cluster.logs());
    let enrolled = cluster.log("b").matches("enrolled as b").count();
    assert_eq!(enrolled, 2, "{}", cluster.log("b"));
}
