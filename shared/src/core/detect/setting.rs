//! What can be set of a rule, declared once in the rule's own file:
//!
//! ```text
//! settings! {
//!     pub struct RolloutSilent {
//!         pub window: ByPhase<Duration> = Setting::window(60.0),
//!         pub probe_timeout: ByRole<Duration> = Setting::seconds("probe_timeout_s", 5.0),
//!     }
//! }
//! ```
//! From this come the keys that a job file may have, their bounds and defaults, the list of
//! `robustctl rules`, and the fields that the core reads: `rules.rollout_silent.window.at(role, phase)`.
//! The type of a field says its unit (a time, a count, a plain number) and for whom it may differ.
use crate::ids::Role;
use crate::phase::Phase;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Longest time a rule may wait, in seconds: 30 days.
pub const LONGEST_S: f64 = 30.0 * 86_400.0;
/// Activity samples a window must span.
pub const LEAST_SAMPLES: u32 = 4;

/// A number of a rule that a job file may set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Its key.
    pub key: &'static str,
    /// Its value if nobody sets it.
    pub default: f64,
    /// The smallest value with a meaning.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// A window over activity samples: it must span several, or one late sample would be a verdict.
    pub samples: bool,
    /// It counts something. The type of its field says so.
    pub whole: bool,
    /// It may differ by role. The type of its field says so.
    pub by_role: bool,
    /// It may differ by phase. The type of its field says so.
    pub by_phase: bool,
}

impl Setting {
    /// A number within bounds, in the unit of its field's type.
    pub const fn number(key: &'static str, default: f64, least: f64, most: f64) -> Self {
        Self {
            key,
            default,
            least,
            most,
            samples: false,
            whole: false,
            by_role: false,
            by_phase: false,
        }
    }

    /// A time in seconds that is not 0.
    pub const fn seconds(key: &'static str, default: f64) -> Self {
        Self::number(key, default, 0.001, LONGEST_S)
    }

    /// A window over activity samples, in seconds.
    pub const fn window(default: f64) -> Self {
        Self {
            samples: true,
            ..Self::seconds("window_s", default)
        }
    }
}

/// What a setting is to whoever reads it; a job file has it as a number.
pub trait Unit: Copy {
    /// It counts something.
    const WHOLE: bool;
    /// The job file's number as this.
    fn from_number(number: f64) -> Self;
    /// This as the job file's number.
    fn number(self) -> f64;
}

impl Unit for f64 {
    const WHOLE: bool = false;
    fn from_number(number: f64) -> Self {
        number
    }
    fn number(self) -> f64 {
        self
    }
}

impl Unit for u32 {
    const WHOLE: bool = true;
    fn from_number(number: f64) -> Self {
        number as Self
    }
    fn number(self) -> f64 {
        self.into()
    }
}

impl Unit for Duration {
    const WHOLE: bool = false;
    /// Seconds; what no job file may hold counts as none.
    fn from_number(number: f64) -> Self {
        Self::try_from_secs_f64(number).unwrap_or_default()
    }
    fn number(self) -> f64 {
        self.as_secs_f64()
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// A key of the job file, dotted.
    JobFile(String),
    /// It follows from another key of the job file.
    Derived(&'static str),
    /// A program set it: a simulation or a test.
    Program,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::JobFile(key) => write!(f, "job file: {key}"),
            Source::Derived(from) => write!(f, "from {from}"),
            Source::Program => f.write_str("set by program"),
        }
    }
}

/// A value in force.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    pub number: f64,
    pub source: Source,
}

/// A value for a role, a phase, or a role in a phase.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Special {
    pub role: Option<Role>,
    pub phase: Option<Phase>,
    pub value: Value,
}

/// What is in force of one setting: the value in general, then what single roles and phases have.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// What may be set.
    pub(crate) setting: Setting,
    pub(super) base: Value,
    pub(super) special: Vec<Special>,
}

impl Values {
    fn new(setting: Setting) -> Self {
        let base = Value {
            number: setting.default,
            source: Source::Default,
        };
        Self {
            setting,
            base,
            special: Vec::new(),
        }
    }

    /// The most special value that fits wins: a phase's before a role's before the general one.
    fn number(&self, role: Option<Role>, phase: Option<Phase>) -> f64 {
        let fits = |s: &&Special| {
            s.role.is_none_or(|r| Some(r) == role) && s.phase.is_none_or(|p| Some(p) == phase)
        };
        let rank = |s: &&Special| (s.phase.is_some(), s.role.is_some());
        let special = self.special.iter().filter(fits).max_by_key(rank);
        special.map_or(self.base.number, |s| s.value.number)
    }

    /// Sets what follows from another key, unless the job file says it.
    pub(in crate::core) fn derive(&mut self, number: f64, from: &'static str) {
        if self.base.source == Source::Default {
            let source = Source::Derived(from);
            self.base = Value { number, source };
        }
    }

    fn derive_special(
        &mut self,
        role: Role,
        phase: Option<Phase>,
        number: f64,
        from: &'static str,
    ) {
        let says_it = |s: &Special| s.phase == phase && s.role.is_none_or(|r| r == role);
        if !self.special.iter().any(says_it) {
            let (role, source) = (Some(role), Source::Derived(from));
            let value = Value { number, source };
            self.special.push(Special { role, phase, value });
        }
    }

    /// Sets what a job file says.
    pub(super) fn say(
        &mut self,
        role: Option<Role>,
        phase: Option<Phase>,
        number: f64,
        key: String,
    ) {
        let source = Source::JobFile(key);
        let value = Value { number, source };
        match (role, phase) {
            (None, None) => self.base = value,
            _ => self.special.push(Special { role, phase, value }),
        }
    }
}

/// A setting in force, read as a `T`. For whom it may differ is `Reach`.
#[derive(Clone, PartialEq)]
pub struct Typed<T, Reach> {
    // All of them together travel with the job's configuration.
    pub(super) values: Box<Values>,
    read_as: PhantomData<(T, Reach)>,
}

/// The same for all whom the rule watches.
pub type ForAll<T> = Typed<T, All>;
/// A role may have its own.
pub type ByRole<T> = Typed<T, Roles>;
/// A role may have its own, and a phase may.
pub type ByPhase<T> = Typed<T, Phases>;

/// For whom a setting may differ.
pub trait Reach {
    /// By role.
    const BY_ROLE: bool;
    /// By phase.
    const BY_PHASE: bool;
}

/// For nobody.
#[derive(Clone, Debug, PartialEq)]
pub enum All {}
/// By role.
#[derive(Clone, Debug, PartialEq)]
pub enum Roles {}
/// By role and by phase.
#[derive(Clone, Debug, PartialEq)]
pub enum Phases {}

impl Reach for All {
    const BY_ROLE: bool = false;
    const BY_PHASE: bool = false;
}
impl Reach for Roles {
    const BY_ROLE: bool = true;
    const BY_PHASE: bool = false;
}
impl Reach for Phases {
    const BY_ROLE: bool = true;
    const BY_PHASE: bool = true;
}

impl<T, R> fmt::Debug for Typed<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Values { base, special, .. } = self.values.as_ref();
        match special.as_slice() {
            [] => write!(f, "{base:?}"),
            special => write!(f, "{base:?} and {special:?}"),
        }
    }
}

impl<T: Unit, R: Reach> Typed<T, R> {
    pub(super) fn new(setting: Setting) -> Self {
        let values = Values::new(Setting {
            whole: T::WHOLE,
            by_role: R::BY_ROLE,
            by_phase: R::BY_PHASE,
            ..setting
        });
        Self {
            values: Box::new(values),
            read_as: PhantomData,
        }
    }

    /// What it is where no role and no phase has its own.
    pub(in crate::core) fn general(&self) -> T {
        T::from_number(self.values.base.number)
    }

    /// Sets what it is in general, for simulations and tests.
    pub fn set(&mut self, to: T) {
        let (number, source) = (to.number(), Source::Program);
        self.values.base = Value { number, source };
    }

    /// Sets what follows from another key, unless the job file says it.
    pub(in crate::core) fn derive(&mut self, to: T, from: &'static str) {
        self.values.derive(to.number(), from);
    }
}

impl<T: Unit> ForAll<T> {
    /// What it is.
    pub fn get(&self) -> T {
        self.general()
    }
}

impl<T: Unit> ByRole<T> {
    /// Sets what follows for a role from another key, unless the job file says it for that role.
    pub(in crate::core) fn derive_of(&mut self, role: Role, to: T, from: &'static str) {
        self.values.derive_special(role, None, to.number(), from);
    }

    /// What it is for a role.
    pub fn of(&self, role: Role) -> T {
        T::from_number(self.values.number(Some(role), None))
    }
}

impl<T: Unit> ByPhase<T> {
    /// Sets what follows for a role in a phase from another key, unless the job file says it for that
    /// phase.
    pub(in crate::core) fn derive_at(
        &mut self,
        (role, phase): (Role, Phase),
        to: T,
        from: &'static str,
    ) {
        self.values
            .derive_special(role, Some(phase), to.number(), from);
    }

    /// What it is for a role in a phase.
    pub fn at(&self, role: Role, phase: Phase) -> T {
        T::from_number(self.values.number(Some(role), Some(phase)))
    }
}

/// The settings of one rule, in the order in which they were declared.
pub(super) trait Settings {
    fn values(&self) -> Vec<&Values>;
    fn values_mut(&mut self) -> Vec<&mut Values>;
}

/// Of a rule that has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NoSettings;

impl Settings for NoSettings {
    fn values(&self) -> Vec<&Values> {
        Vec::new()
    }
    fn values_mut(&mut self) -> Vec<&mut Values> {
        Vec::new()
    }
}

/// Declares the settings of a rule: a struct with a field each, its default, and the list of them.
macro_rules! settings {
    ($(#[$about:meta])* pub struct $rule:ident {
        $($(#[$doc:meta])* pub $field:ident: $kind:ty = $setting:expr,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $rule {
            $($(#[$doc])* pub $field: $kind,)+
        }

        impl Default for $rule {
            fn default() -> Self {
                Self { $($field: <$kind>::new($setting),)+ }
            }
        }

        impl $crate::core::detect::Settings for $rule {
            fn values(&self) -> Vec<&$crate::core::detect::Values> {
                vec![$(self.$field.values.as_ref()),+]
            }
            fn values_mut(&mut self) -> Vec<&mut $crate::core::detect::Values> {
                vec![$(self.$field.values.as_mut()),+]
            }
        }
    };
}
pub(super) use settings;
