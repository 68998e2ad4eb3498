//! The controllers of a job, in words.
use crate::format::{bytes, clock, millis};
use robust_proto::v1;
use robust_shared::wire::FollowerState;

/// Who leads, and who follows how far behind.
pub fn who(of: &v1::Controllers) -> String {
    let since = clock(of.led_ms as f64 / 1000.0);
    let followers: Vec<String> = of.followers.iter().map(follower).collect();
    let followers = match followers.is_empty() {
        true => "nobody follows".to_owned(),
        false => followers.join(", "),
    };
    format!(
        "{} leads for {since} (epoch {}); {followers}",
        of.leader, of.epoch
    )
}

fn follower(of: &v1::Follower) -> String {
    let name = &of.name;
    match (of.state(), of.behind) {
        (Some(FollowerState::Silent), _) => {
            format!("{name} silent for {}", clock(of.silent_ms as f64 / 1000.0))
        }
        (Some(FollowerState::LacksFiles), _) => {
            let files = match of.lacks_files {
                0 => "lacks files".to_owned(),
                1 => "lacks 1 file".to_owned(),
                n => format!("lacks {n} files"),
            };
            let here = match of.files_bytes {
                0 => String::new(),
                all => {
                    let here = all.saturating_sub(of.lacks_bytes);
                    format!(", {} of {} here", bytes(here), bytes(all))
                }
            };
            format!("{name} cannot lead: {files}{here}")
        }
        (_, 0) => format!("{name} follows"),
        (_, behind) => format!("{name} follows, {behind} behind"),
    }
}

/// Why followers cannot lead; none: all could.
pub fn lacking(of: &v1::Controllers) -> Option<String> {
    let lacking = of
        .followers
        .iter()
        .filter(|f| f.state() == Some(FollowerState::LacksFiles));
    let lacking: Vec<String> = lacking
        .map(|f| format!("{}: {}", f.name, f.lacks))
        .collect();
    (!lacking.is_empty()).then(|| lacking.join("; "))
}

/// From whom the leader took over, and how long each stage of that took; none for the job's first leader.
pub fn takeover(of: &v1::Controllers) -> Option<String> {
    let takeover = of.takeover.as_ref().filter(|t| !t.from.is_empty())?;
    let stage = |stage: &v1::Stage| format!("{} {}", stage.name, millis(stage.ms));
    let stages: Vec<String> = takeover.stages.iter().map(stage).collect();
    Some(format!(
        "from {} in {}: {}",
        takeover.from,
        millis(takeover.total_ms),
        stages.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_its_followers_and_its_takeover_are_said_in_a_line_each() {
        let follower = |name: &str, state: &str, behind| v1::Follower {
            name: name.to_owned(),
            state: state.to_owned(),
            behind,
            silent_ms: 12_000,
            ..v1::Follower::default()
        };
        let stage = |name: &str, ms| v1::Stage {
            name: name.to_owned(),
            ms,
        };
        let mut of = v1::Controllers {
            leader: "b".to_owned(),
            epoch: 7,
            led_ms: 60_000,
            ..v1::Controllers::default()
        };
        assert_eq!(who(&of), "b leads for 1m00s (epoch 7); nobody follows");
        assert_eq!(takeover(&of), None);
        let lacks = |files, bytes, of| v1::Follower {
            lacks_files: files,
            lacks_bytes: bytes,
            files_bytes: of,
            ..follower("d", "lacks files", 0)
        };
        of.followers = vec![lacks(2, 2 << 30, 3 << 30)];
        let said = who(&of);
        let (here, all) = (bytes(1 << 30), bytes(3 << 30));
        assert_eq!(
            said,
            format!(
                "b leads for 1m00s (epoch 7); d cannot lead: lacks 2 files, {here} of {all} here"
            )
        );
        of.followers = vec![lacks(1, 0, 0)];
        of.followers[0].lacks = "arith.jsonl is not there".to_owned();
        assert_eq!(lacking(&of).as_deref(), Some("d: arith.jsonl is not there"));
        assert!(who(&of).ends_with("d cannot lead: lacks 1 file"));
        of.followers = vec![follower("a", "silent", 0), follower("c", "follows", 3)];
        assert_eq!(lacking(&of), None);
        of.takeover = Some(v1::Takeover {
            from: "a".to_owned(),
            why: "it gave no sign".to_owned(),
            stages: vec![stage("silence", 702.0), stage("election", 9.0)],
            total_ms: 711.0,
        });
        assert_eq!(
            who(&of),
            "b leads for 1m00s (epoch 7); a silent for 12s, c follows, 3 behind"
        );
        let said = takeover(&of).unwrap_or_default();
        assert_eq!(said, "from a in 711 ms: silence 702 ms, election 9 ms");
    }
}
