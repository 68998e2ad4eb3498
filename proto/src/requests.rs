//! Requests of the control API by the names of their calls, for whoever has one as bytes: the audit log writes down what
//! was asked for, whatever the call.
use crate::v1;

/// Reads a request, of whichever type it is.
pub trait Reader {
    /// What it says of one.
    type Said;

    /// Reads one of this type.
    fn read<M: prost::Message + Default + serde::Serialize>(self) -> Self::Said;
}

include!("generated/requests.rs");
