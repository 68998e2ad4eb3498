//! What operators write beside incidents.
use super::control::ControlService;
use super::rights::Caller;
use crate::notes::{NotesError, shown};
use robust_proto::v1;
use tonic::{Request, Status};

impl ControlService {
    /// The status with what operators wrote beside its incidents.
    pub(super) fn status_with_notes(&self) -> v1::Status {
        let mut status = v1::Status::clone(&self.status.borrow());
        self.notes.show(&mut status.incidents);
        status
    }

    /// Keeps a note of the caller's.
    pub(super) async fn on_note(
        &self,
        request: Request<v1::NoteRequest>,
    ) -> Result<v1::NoteReply, Status> {
        let caller = request.extensions().get::<Caller>().map(Caller::who);
        let who = caller.unwrap_or_else(|| "nobody knows who".to_owned());
        let v1::NoteRequest { incident, text } = request.into_inner();
        let added = self.notes.add(incident, (self.clock.now(), who, &text));
        let (note, count) = added.await.map_err(|e| refused(&e))?;
        Ok(v1::NoteReply {
            note: Some(shown(&note)),
            count: u32::try_from(count).unwrap_or(u32::MAX),
        })
    }
}

fn refused(error: &NotesError) -> Status {
    let text = error.to_string();
    match error {
        NotesError::Text(_) => Status::invalid_argument(text),
        NotesError::Unknown { .. } => Status::not_found(text),
        NotesError::TooMany { .. } | NotesError::Full | NotesError::Closed(_) => {
            Status::failed_precondition(text)
        }
        NotesError::Store(_) => Status::internal(text),
        NotesError::Ending => Status::unavailable(text),
    }
}
