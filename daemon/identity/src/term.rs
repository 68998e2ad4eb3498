//! For how long a certificate is good.
use std::time::Duration;

use time::OffsetDateTime;

/// The clocks of two machines may differ by so much: a certificate is good before the moment at which it is made.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3600);
/// 2020-01-01 and 2120-01-01, in Unix seconds.
const EPOCH: (u64, u64) = (1_577_836_800, 4_733_510_400);

/// When a certificate begins and ends to be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    since_s: u64,
    until_s: u64,
}

impl Term {
    /// From the moment `now_ms` (Unix time) for `life`, and an hour before, because the clocks of machines differ.
    pub fn of(now_ms: u64, life: Duration) -> Self {
        let now_s = now_ms / 1000;
        Self {
            since_s: now_s.saturating_sub(CLOCKS_DIFFER.as_secs()),
            until_s: now_s.saturating_add(life.as_secs()).min(EPOCH.1),
        }
    }

    /// From 2020 to 2120: for an authority, which has to come out the same of the same secret, and for what ends with
    /// the process that made it.
    pub const fn unbounded() -> Self {
        Self {
            since_s: EPOCH.0,
            until_s: EPOCH.1,
        }
    }

    /// When it is over, in Unix time.
    pub fn until_ms(self) -> u64 {
        self.until_s * 1000
    }

    /// When a certificate that was made at `since_ms` and ends at `until_ms` is to be made anew: at half of its life, so
    /// that there is as much time again to try.
    pub fn renewed_at(since_ms: u64, until_ms: u64) -> u64 {
        since_ms.saturating_add(until_ms.saturating_sub(since_ms) / 2)
    }

    pub(crate) fn dates(self) -> (OffsetDateTime, OffsetDateTime) {
        (date(self.since_s), date(self.until_s))
    }
}

fn date(unix_s: u64) -> OffsetDateTime {
    // Whatever comes in is between 1970 and 2120, which both types have.
    let date = i64::try_from(unix_s)
        .ok()
        .map(OffsetDateTime::from_unix_timestamp);
    date.and_then(Result::ok)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_good_an_hour_early_and_is_made_anew_at_half_of_its_life() {
        let now_ms = 1_800_000_000_000;
        let term = Term::of(now_ms, Duration::from_secs(1000));
        let (since, until) = term.dates();
        assert_eq!(since.unix_timestamp(), 1_800_000_000 - 3600);
        assert_eq!(until.unix_timestamp(), 1_800_001_000);
        assert_eq!(term.until_ms(), now_ms + 1_000_000);
        assert_eq!(Term::renewed_at(now_ms, term.until_ms()), now_ms + 500_000);
    }

    #[test]
    fn no_moment_is_out_of_bounds() {
        let (since, until) = Term::of(u64::MAX, Duration::MAX).dates();
        assert_eq!((since.year(), until.year()), (1970, 2120));
        let (since, _) = Term::of(0, Duration::ZERO).dates();
        assert_eq!(since.year(), 1970);
        assert_eq!(Term::unbounded().dates().0.year(), 2020);
    }
}
