//! What operators ask about the authorities that certify nodes and roles.
use super::control::ControlService;
use super::joins::Joins;
use crate::nodes::{Authorities, AuthoritiesError, MembersError, Stage, unix_ms};
use robust_proto::v1;
use robust_shared::wire::{CertifiedKind, RotationStage};
use tonic::Status;

impl From<AuthoritiesError> for Status {
    fn from(error: AuthoritiesError) -> Self {
        let text = error.to_string();
        match error {
            AuthoritiesError::UnderWay | AuthoritiesError::NotUnderWay => {
                Status::failed_precondition(text)
            }
            AuthoritiesError::Identity(_)
            | AuthoritiesError::State(_)
            | AuthoritiesError::Random(_) => Status::internal(text),
        }
    }
}

impl ControlService {
    fn certifiers(&self) -> Result<Authorities, Status> {
        let none = || Status::failed_precondition("the job is only shown: nothing of it runs");
        self.authorities.clone().ok_or_else(none)
    }

    pub(super) async fn on_rotate(
        &self,
        asked: v1::RotateAuthorityRequest,
    ) -> Result<v1::AuthorityReply, Status> {
        let (authorities, joins) = (self.certifiers()?, self.joins.clone());
        // It is on disk before it is answered.
        let rotating = tokio::task::spawn_blocking(move || match asked.now {
            true => leave_behind(&authorities, joins),
            false => Ok(authorities.rotate()?),
        });
        let rotated = rotating.await;
        rotated.map_err(|_| Status::internal("writing it down ended"))??;
        self.on_show_authority()
    }

    pub(super) fn on_show_authority(&self) -> Result<v1::AuthorityReply, Status> {
        let shows = self.certifiers()?.show();
        let now_ms = unix_ms();
        let nodes = self.joins.iter().flat_map(|joins| {
            let nodes = joins.members.list(now_ms).1;
            nodes.into_iter().map(|node| v1::Certified {
                kind: CertifiedKind::Node.word().to_owned(),
                here: joins.sessions.has(&node.name),
                waited_for: shows.before.is_some() && node.waits_for(&shows.name, now_ms),
                name: node.name,
                incarnation: 0,
                authority: node.by,
                until_ms: node.until_ms,
            })
        });
        let status = self.status.borrow().clone();
        let is_linked = |incarnation: u64| {
            let mut roles = status.roles.iter();
            roles.any(|role| role.incarnation == incarnation && role.pid > 0)
        };
        let roles = shows
            .roles
            .iter()
            .map(|(incarnation, held, waits)| v1::Certified {
                kind: CertifiedKind::Role.word().to_owned(),
                name: held.role.clone(),
                incarnation: *incarnation,
                authority: held.by.clone(),
                until_ms: held.until_ms,
                waited_for: *waits,
                here: is_linked(*incarnation),
            });
        let certified = nodes.chain(roles).collect();
        let stage = match shows.stage {
            Stage::Alone => "",
            Stage::Trusting => RotationStage::Trusting.word(),
            Stage::Certifying => RotationStage::Certifying.word(),
        };
        Ok(v1::AuthorityReply {
            name: shows.name.clone(),
            before: shows.before.clone().unwrap_or_default(),
            stage: stage.to_owned(),
            certified,
        })
    }
}

/// Waits no longer for those who have no certificate by the authority in force.
fn leave_behind(authorities: &Authorities, joins: Option<Joins>) -> Result<(), Status> {
    authorities.is_being_replaced()?;
    // The authority is dropped last: whoever asks again after a half of this has failed finds the rest to do.
    if let Some(Joins { members, sessions }) = joins {
        let left = members.keep_only(&authorities.name(), unix_ms());
        for name in left.map_err(|error: MembersError| Status::from(error))? {
            sessions.close(&name);
            tracing::warn!("node {name} has no certificate any more: its link is closed");
        }
    }
    authorities.drop_before()?;
    Ok(())
}
