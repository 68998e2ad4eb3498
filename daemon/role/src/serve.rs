//! Weights that others can read here, as the protocol names them.

use robust_proto::manifest;
use robust_proto::v1::{self, Region, ServedVersion};
use robust_transport::RegionKey;
use robust_weights::{Offer, Served};

/// What is served.
pub fn as_served(served: &Served) -> ServedVersion {
    ServedVersion {
        version: served.version.0,
        manifest: Some(manifest::to_proto(&served.manifest)),
        region: Some(as_weights(&served.key, served.patches.as_ref())),
        canary: None,
    }
}

/// The region of a version, and of what makes it of the one before it.
pub fn as_weights(key: &RegionKey, patches: Option<&Offer>) -> Region {
    let patches = patches.map(|offer| v1::Patches {
        base: offer.base.to_vec(),
        key: offer.key.to_bytes(),
    });
    let region = as_region(key);
    Region { patches, ..region }
}

/// A region that others can read.
pub fn as_region(key: &RegionKey) -> Region {
    Region {
        key: key.to_bytes(),
        bytes: key.len,
        patches: None,
    }
}
