//! Gives crash signals back to the process.
use std::sync::Once;

/// ILL, BUS, FPE, SEGV: UCX's default `UCX_ERROR_SIGNALS`. The numbers are the same on every
/// Linux architecture that UCX supports.
const ERROR_SIGNALS: [i32; 4] = [4, 7, 8, 11];

/// UCX's library constructor, which runs before `main`, installs handlers that print a backtrace
/// and can hang a crashing process; a supervisor wants it dead at once. The setting that prevents
/// it (`UCX_HANDLE_ERRORS=none`) is read by that constructor, so it only helps when the launcher
/// puts it into the environment. Otherwise undo it here. A value set by the user is respected.
pub(crate) fn restore_crash_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let set = |name| std::env::var_os(name).is_some();
        if set("UCX_HANDLE_ERRORS") || set("UCX_ERROR_SIGNALS") {
            return;
        }
        for signal in ERROR_SIGNALS {
            // SAFETY: restores the action that UCX had saved; for a signal that it does not
            // handle it only warns.
            unsafe { ucx_sys::ucs_debug_disable_signal(signal) };
        }
    });
}
