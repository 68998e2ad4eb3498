//! The audit log as operators' tools read it.
use super::control::ControlService;
use super::words::unreadable;
use crate::audit::Position;
use robust_proto::v1;
use tokio::sync::mpsc::Sender;
use tonic::Status;

/// Sends stored entries, then, with follow, new ones; ends when the client leaves.
pub(super) async fn send(
    service: ControlService,
    request: v1::AuditRequest,
    to: Sender<Result<v1::AuditEntry, Status>>,
) -> Option<()> {
    let audit = service.audit;
    // Subscribed before the file is read, so that nothing falls between.
    let mut news = audit.watch();
    let mut from = Position::default();
    loop {
        news.mark_unchanged();
        let log = audit.clone();
        let read = tokio::task::spawn_blocking(move || log.read(from))
            .await
            .ok()?;
        let (entries, end) = match read {
            Ok(read) => read,
            Err(error) => {
                to.send(Err(unreadable(error))).await.ok()?;
                return None;
            }
        };
        from = end;
        for entry in entries.into_iter().filter(|e| e.id >= request.since) {
            to.send(Ok(entry)).await.ok()?;
        }
        if !request.follow {
            return Some(());
        }
        tokio::select! {
            () = to.closed() => return None,
            changed = news.changed() => changed.ok()?,
        }
    }
}
