//! What can go wrong with a device.
use cudarc::driver::DriverError;

/// Why a device, or its memory, could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// There is no CUDA driver here, or one without what is needed.
    #[error("no usable CUDA driver: {reason}")]
    NoDriver {
        /// What is missing.
        reason: String,
    },
    /// The driver refused a call.
    #[error("{doing}: {text} (CUDA error {code})")]
    Driver {
        /// What was being done.
        doing: &'static str,
        /// The driver's number for it.
        code: u32,
        /// The driver's name and words for it.
        text: String,
    },
    /// Access beyond the end.
    #[error("access to {offset}+{len} in device memory of {bytes} bytes")]
    Bounds {
        /// Where the access begins.
        offset: usize,
        /// How long it is.
        len: usize,
        /// Length of the memory.
        bytes: usize,
    },
    /// Less staging than one block for each purpose.
    #[error("staging of {bytes} bytes is too little: at least {least} are needed")]
    Staging {
        /// What was asked for.
        bytes: usize,
        /// The least.
        least: usize,
    },
    /// The copies' thread is gone: it panicked, or could not be started.
    #[error("the thread of the device's copies is gone")]
    Gone,
}

impl DeviceError {
    pub(crate) fn of(doing: &'static str) -> impl FnOnce(DriverError) -> DeviceError {
        move |error| {
            let word = |text: Result<&std::ffi::CStr, DriverError>| {
                text.map_or_else(|_| "?".to_owned(), |t| t.to_string_lossy().into_owned())
            };
            let (name, words) = (word(error.error_name()), word(error.error_string()));
            DeviceError::Driver {
                doing,
                code: error.0 as u32,
                text: format!("{name}, {words}"),
            }
        }
    }
}
