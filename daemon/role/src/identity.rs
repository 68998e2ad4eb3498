//! Who this process is to those of its job on other machines. It finds that in its environment, and gets another over its
//! link, before that is over or when the job's authority is replaced.
use std::sync::OnceLock;

use robust_identity::{IdentityError, Member};
use robust_proto::{IDENTITY_VARIABLE, v1};

/// Of this process, as its environment is.
static OWN: OnceLock<Option<Member>> = OnceLock::new();

/// None in a job of one machine.
pub(crate) fn member() -> Result<Option<Member>, IdentityError> {
    if let Some(own) = OWN.get() {
        return Ok(own.clone());
    }
    let pem = crate::spare::variable(IDENTITY_VARIABLE);
    let own = pem.map(|pem| Member::from_pem(&pem)).transpose()?;
    Ok(OWN.get_or_init(|| own).clone())
}

/// Of the certificate that this process shows now; empty without one.
pub(crate) fn fingerprint() -> String {
    let own = member().ok().flatten();
    let shown = own.and_then(|own| own.fingerprint());
    shown.map_or_else(String::new, |shown| shown.to_string())
}

/// Is this from now on, in new connections, and says so.
pub(crate) fn take(new: &v1::NewIdentity) -> v1::IdentityTaken {
    let taken = match member() {
        Ok(Some(own)) => own.renew(&new.pem).map_err(|error| error.to_string()),
        Ok(None) => Err(format!(
            "{IDENTITY_VARIABLE} was not set when it was started"
        )),
        Err(error) => Err(error.to_string()),
    };
    let error = taken.err().unwrap_or_default();
    match error.is_empty() {
        true => tracing::info!("has a new certificate"),
        false => tracing::warn!(%error, "a new certificate cannot be used"),
    }
    let fingerprint = fingerprint();
    v1::IdentityTaken { fingerprint, error }
}
