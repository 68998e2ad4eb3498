//! Endpoints and requests for them.
use ucx_sys::{ucp_conn_request_h, ucp_ep_h};

use super::sink::{LinkTag, ReplyTo};

/// A peer's wish to connect; must be accepted or rejected.
pub(crate) struct ConnRequest(pub(super) ucp_conn_request_h);

/// An open endpoint. Given back to the worker to be closed; dropping it would leak it.
pub(crate) struct Endpoint {
    pub(super) handle: ucp_ep_h,
    pub(super) tag: Box<LinkTag>,
}

impl Endpoint {
    /// How messages name it that came over it.
    pub fn name(&self) -> ReplyTo {
        ReplyTo(self.handle as usize)
    }
}
