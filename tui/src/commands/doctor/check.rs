//! A check's verdict and the fix.
use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Not looked at; the finding says why.
    Skipped,
    /// The job will run, but slower or with less of a net.
    Warn,
    /// The job will not run, or will not survive.
    Fail,
}

impl Verdict {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// The end of a log that says more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
}

impl Check {
    fn new(
        name: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        fix: Option<String>,
    ) -> Self {
        let found = found.into();
        Self {
            name,
            verdict,
            found,
            fix,
            log: Vec::new(),
        }
    }

    /// With the end of a log that says more.
    pub fn with_log(mut self, log: &[String]) -> Self {
        self.log = log.to_vec();
        self
    }

    /// As it should be.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, found, None)
    }

    /// Not looked at, and why.
    pub fn skipped(name: &'static str, why: impl Into<String>) -> Self {
        Self::new(name, Verdict::Skipped, why, None)
    }

    /// It will run, but.
    pub fn warn(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(name, Verdict::Warn, found, Some(fix.into()))
    }

    /// It will not run.
    pub fn fail(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(name, Verdict::Fail, found, Some(fix.into()))
    }
}
