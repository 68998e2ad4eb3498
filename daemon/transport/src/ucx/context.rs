//! The UCX context and its configuration.
use std::ffi::CString;
use std::ptr;

use ucx_sys::*;

use crate::error::TransportError;
use crate::status::Status;

/// Keys of `ucp_config_modify` with their values.
pub(super) type Settings<'a> = [(&'static str, &'a str)];

/// Owns a `ucp_context_h`.
pub(super) struct Context(pub ucp_context_h);

impl Context {
    pub fn new(settings: &Settings<'_>) -> Result<Context, TransportError> {
        let mut config = ptr::null_mut();
        // SAFETY: out pointer is valid; null prefix and file mean the defaults.
        Status(unsafe { ucp_config_read(ptr::null(), ptr::null(), &raw mut config) })
            .check()
            .map_err(|s| s.doing("reading UCX's configuration"))?;
        for (name, value) in settings {
            modify(config, name, value);
        }
        let params = ucp_params_t {
            field_mask: UCP_PARAM_FIELD_FEATURES,
            features: UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
            ..Default::default()
        };
        let mut context = ptr::null_mut();
        let (major, minor) = (UCP_API_MAJOR, UCP_API_MINOR);
        // SAFETY: parameters are valid for their mask; config was read above.
        let status = Status(unsafe {
            ucp_init_version(major, minor, &raw const params, config, &raw mut context)
        });
        // SAFETY: read above, released once.
        unsafe { ucp_config_release(config) };
        status.check().map_err(|s| s.doing("initialising UCX"))?;
        Ok(Context(context))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the worker, dropped before, was the last user.
        unsafe { ucp_cleanup(self.0) };
    }
}

fn modify(config: *mut ucp_config, name: &str, value: &str) {
    let (Ok(c_name), Ok(c_value)) = (CString::new(name), CString::new(value)) else {
        return;
    };
    // SAFETY: a configuration just read and two C strings.
    let status = Status(unsafe { ucp_config_modify(config, c_name.as_ptr(), c_value.as_ptr()) });
    if status != Status::OK {
        // A later UCX may have dropped it: slower, but not wrong.
        tracing::warn!(name, value, status = status.text(), "UCX refused a setting");
    }
}
