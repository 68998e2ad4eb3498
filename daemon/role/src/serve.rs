//! Weights that others can read here, as the protocol names them.

use robust_proto::manifest;
use robust_proto::v1::{self, Region, ServedVersion};
use robust_transport::RegionKey;
use robust_weights::{Link, Served};

/// What is served.
pub fn as_served(served: &Served) -> ServedVersion {
    ServedVersion {
        version: served.version.0,
        manifest: Some(manifest::to_proto(&served.manifest)),
        region: Some(as_weights(&served.key, &served.patches)),
        canary: None,
    }
}

/// The region of a version, and of what makes it of those before it.
pub fn as_weights(key: &RegionKey, patches: &[Link]) -> Region {
    let patch = |link: &Link| v1::Patches {
        base: link.base.to_vec(),
        key: link.key.to_bytes(),
    };
    Region {
        patches: patches.iter().map(patch).collect(),
        ..as_region(key)
    }
}

/// A region that others can read.
pub fn as_region(key: &RegionKey) -> Region {
    Region {
        key: key.to_bytes(),
        bytes: key.len,
        patches: Vec::new(),
    }
}
