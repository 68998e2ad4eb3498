//! NVML's C symbols, playing a scenario: what `nvml-wrapper` loads in tests instead of the driver's
//! library.
//!
//! ```text
//!  nvml-wrapper ──dlopen──► libnvml_fake.so ──► symbols ──► Scenario::now(device) ──► figures
//!                                                               ▲
//!                      round of a device = handles asked for it ┘
//! ```
//! The scenario is the file named by `NVML_FAKE_SCENARIO`, else `scenario.toml` beside the library:
//! a test that wants its own copies both into a folder of its own, and the loader gives every copy a
//! state of its own. Time is counted in rounds of calls, so nothing in it depends on a clock.
#![allow(unsafe_code)] // C symbols; every pointer comes from the caller, as NVML documents.

mod scenario;
mod symbols;

pub use scenario::{Figures, Scenario, ScenarioError};

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where the scenario is.
pub(crate) fn scenario_path() -> PathBuf {
    std::env::var_os("NVML_FAKE_SCENARIO").map_or_else(beside_library, PathBuf::from)
}

fn beside_library() -> PathBuf {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = scenario_path as fn() -> PathBuf as *const libc::c_void;
    // SAFETY: `info` is written by dladdr; its file name, if any, lives as long as the library.
    let library = unsafe {
        libc::dladdr(here, info.as_mut_ptr());
        let name = info.assume_init().dli_fname;
        (!name.is_null()).then(|| PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes())))
    };
    library.unwrap_or_default().with_file_name("scenario.toml")
}
