//! Certificates of roles and nodes that live: made anew before they are over, and where the leader's secret is replaced.
use super::{Driver, spaced};
use crate::nodes::unix_ms;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::{self, host_message};
use robust_shared::ids::Incarnation;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How often there is something to do at most.
const LOOK: Duration = Duration::from_millis(500);
/// How long it may wait in a job so large that looking takes a while.
const LATEST: Duration = Duration::from_secs(5);

impl Driver {
    /// Sends what is due, and goes on with a rotation as far as everybody lets it.
    pub(super) fn look_after_certificates(&mut self) {
        if self.certified.elapsed() < spaced(self.certifying, LOOK).min(LATEST) {
            return;
        }
        self.certified = Instant::now();
        self.send_certificates();
        self.certifying = self.certified.elapsed();
    }

    fn send_certificates(&mut self) {
        let (now_ms, authorities) = (unix_ms(), self.parts.authorities.clone());
        let living = self.certified_lives();
        let members = self.parts.members.as_ref();
        let nodes_wait = authorities.is_rotating()
            && members.is_some_and(|members| members.wait_for(&authorities.name(), now_ms));
        if let Err(error) = authorities.settle(&living, nodes_wait) {
            self.undropped
                .say(|| format!("the leader's secret before cannot be dropped: {error}"));
        }
        if authorities.is_rotating() {
            self.nodes.renew_all(&authorities.called());
        }
        self.certify_nodes_anew(now_ms);
        for incarnation in authorities.due(now_ms) {
            self.certify_anew(Incarnation(incarnation), now_ms);
        }
    }

    /// What nodes show to each other; who is away gets it when it joins again.
    fn certify_nodes_anew(&self, now_ms: u64) {
        let renewed = match self.parts.authorities.renewed_among_nodes(now_ms) {
            Ok(renewed) => renewed,
            Err(error) => {
                return tracing::error!("nodes get no new certificates for each other: {error}");
            }
        };
        for (name, pem) in renewed {
            let node = self.core.node_id(&name);
            if let Some(remote) = node.and_then(|node| self.nodes.get(node)) {
                remote.order(Down::Identity(v1::NewIdentity { pem }));
            }
        }
    }

    fn certify_anew(&self, incarnation: Incarnation, now_ms: u64) {
        if !self.links.is_open(incarnation) {
            // It says what it has when it links again.
            return;
        }
        match self.parts.authorities.renew_role(incarnation.0, now_ms) {
            Ok(pem) => {
                let new = host_message::Body::Identity(v1::NewIdentity { pem });
                self.links.send(incarnation, new);
            }
            Err(error) => tracing::error!("{incarnation} gets no new certificate: {error}"),
        }
    }

    /// A role says which certificate it shows.
    pub(super) fn on_certificate(&self, incarnation: Incarnation, fingerprint: &str) {
        if self.parts.worker.certifiers().is_some() {
            let authorities = &self.parts.authorities;
            authorities.role_says(incarnation.0, fingerprint);
        }
    }

    /// Those that other machines ask for a certificate. What a node that is away may still run of lives that are over is
    /// none of them: it is killed when that comes back.
    fn certified_lives(&self) -> BTreeMap<u64, String> {
        let certifiers = self.parts.worker.certifiers();
        let lives = certifiers.into_iter().flat_map(|_| self.processes.keys());
        let named = lives.filter_map(|i| Some((i.0, self.core.is_current(*i)?.to_string())));
        named.collect()
    }
}
