//! The version that a rank's program wrote last.
//!
//! ```text
//!  none ──► begun ── the program says that it is written ──► told ── served, or it cannot be ──► told, with what came of it
//!             ▲                                               │                                   │
//!             └──────────────────────── another one is begun ─┴───────────────────────────────────┘
//! ```

use robust_proto::v1::ServedVersion;

/// What came of a version: it is served, or the reason why it cannot be.
type Outcome = Result<ServedVersion, String>;

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    /// The program was told where to write it.
    Begun(u64),
    /// The program wrote it; none: it is not served yet.
    Told(u64, Option<Box<Outcome>>),
}

/// The version that the program wrote last.
#[derive(Debug, Default)]
pub struct LastVersion(State);

impl LastVersion {
    /// The program was told where to write this version.
    pub fn begin(&mut self, version: u64) {
        self.0 = State::Begun(version);
    }

    /// Whether the program writes this version.
    pub fn is_begun(&self, version: u64) -> bool {
        matches!(self.0, State::Begun(of) if of == version)
    }

    /// The program wrote this version.
    pub fn tell(&mut self, version: u64) {
        self.0 = State::Told(version, None);
    }

    /// Whether the program wrote this version.
    pub fn is_told(&self, version: u64) -> bool {
        matches!(self.0, State::Told(of, _) if of == version)
    }

    /// What came of this version; nothing changes where it is known, or the program wrote another one since.
    pub fn end(&mut self, version: u64, came: Outcome) {
        if matches!(self.0, State::Told(of, None) if of == version) {
            self.0 = State::Told(version, Some(Box::new(came)));
        }
    }

    /// The version of which it is known what came, and that.
    pub fn ended(&self) -> Option<(u64, &Outcome)> {
        match &self.0 {
            State::Told(version, Some(came)) => Some((*version, came)),
            State::None | State::Begun(_) | State::Told(_, None) => None,
        }
    }
}
