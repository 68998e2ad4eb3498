//! Handlers for every kind of message that a peer may send.
use ucx_sys::*;

use super::sink::{KindTag, Sink, on_message};
use crate::error::TransportError;
use crate::road::MessageKind;
use crate::status::Status;

/// Every number that fits the field on the wire has a handler, most of them that for unknown
/// kinds. UCX 1.13.1 reads its table of handlers before it checks the number against the table's
/// size, and does not initialise what lies between the last one registered and that size: for a
/// kind without a handler it may call any address. The full table is 1.5 MiB.
const LAST: u16 = u16::MAX;

/// Registers the handlers; the tags must live as long as the worker, the sink longer.
pub(super) fn register(
    worker: ucp_worker_h,
    sink: *const Sink,
) -> Result<Box<[KindTag]>, TransportError> {
    let tag = |kind| KindTag { sink, kind };
    let tags: Box<[KindTag]> = MessageKind::ALL.map(tag).into();
    // From the last one down, so that the table is made once.
    for id in (0..=LAST).rev() {
        let tag = tags.get(usize::from(id)).unwrap_or(&tags[0]);
        let param = ucp_am_handler_param_t {
            field_mask: UCP_AM_HANDLER_PARAM_FIELD_ID
                | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                | UCP_AM_HANDLER_PARAM_FIELD_CB
                | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            id: id.into(),
            flags: UCP_AM_FLAG_WHOLE_MSG,
            cb: Some(on_message),
            arg: (&raw const *tag).cast_mut().cast(),
        };
        // SAFETY: a live worker; the caller keeps the tags, which stay where they are on the heap.
        Status(unsafe { ucp_worker_set_am_recv_handler(worker, &raw const param) })
            .check()
            .map_err(|s| s.doing("registering a message handler"))?;
    }
    Ok(tags)
}
