//! What the tests of the arbiter have in common.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use robust_arbiter::{Arbiter, Compare, Etcd, Options, Revision, Tls, Transacted, Write};
use robust_etcd::{Cluster, Papers};

pub fn put(key: &str, value: &str) -> Write {
    Write::Put {
        key: key.to_owned(),
        value: value.into(),
        lease: None,
    }
}

pub fn absent(key: &str) -> Compare {
    Compare::Absent {
        key: key.to_owned(),
    }
}

pub fn created(key: &str, revision: Revision) -> Compare {
    Compare::Created {
        key: key.to_owned(),
        revision,
    }
}

pub fn modified(key: &str, revision: Revision) -> Compare {
    Compare::Modified {
        key: key.to_owned(),
        revision,
    }
}

pub fn done(transacted: Transacted) -> Revision {
    match transacted {
        Transacted::Done(revision) => revision,
        Transacted::Refused { found } => panic!("it was refused: {found:?}"),
    }
}

pub async fn puts(arbiter: &dyn Arbiter, key: &str, value: &str) -> Revision {
    done(
        arbiter
            .transact(vec![], vec![put(key, value)])
            .await
            .unwrap(),
    )
}

pub fn tls(papers: &Papers) -> Tls {
    Tls {
        certificate: papers.certificate.clone(),
        key: papers.key.clone(),
        authority: papers.authority.clone(),
    }
}

/// Its members in this order.
pub fn options(cluster: &Cluster, members: &[usize]) -> Options {
    let endpoints = cluster.endpoints();
    let endpoints = members
        .iter()
        .map(|index| endpoints[*index].parse().unwrap());
    Options {
        tls: cluster.papers().map(tls),
        timeout: Duration::from_secs(1),
        ..Options::new(endpoints.collect())
    }
}

pub fn client(cluster: &Cluster, members: &[usize]) -> Etcd {
    Etcd::new(options(cluster, members)).unwrap()
}
