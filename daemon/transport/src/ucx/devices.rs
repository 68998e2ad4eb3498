//! Network devices, as they are named and as they are there.
//!
//! A name that UCX does not know costs a warning there, and every way to every peer: pulls would fail
//! one after the other, with no rule to end them. So a transport does not start with one.
use super::context::{Context, Settings};
use super::survey::{Survey, transports};
use crate::error::TransportError;

/// UCX's key for the list; the user's variable has `UCX_` before it.
pub(crate) const NET_DEVICES: &str = "NET_DEVICES";
/// The name that means every device.
const ALL: &str = "all";
/// A list of what is not wanted. UCX 1.13 takes it for a part of a name, later versions do not.
const NEGATION: char = '^';

/// The names of a list that are not among these devices. Like UCX 1.13: commas part names, blanks
/// belong to them, nothing stands for several devices but `all`.
pub(super) fn unknown(list: &str, there: &[String]) -> Vec<String> {
    let known = |name: &str| name == ALL || there.iter().any(|device| device == name);
    names(list)
        .filter(|name| !known(name))
        .map(str::to_owned)
        .collect()
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|name| !name.is_empty())
}

/// The list that a context made with these settings has; none: UCX takes all devices.
pub(super) fn asked(settings: &Settings<'_>) -> Option<String> {
    let ours = settings.iter().find(|(key, _)| *key == NET_DEVICES);
    let ours = ours.map(|(_, value)| (*value).to_owned());
    ours.or_else(|| std::env::var(format!("UCX_{NET_DEVICES}")).ok())
}

/// Whether every device that is named is there. Where all of them are in use already, as a rule,
/// nothing more is looked at.
pub(super) fn check(context: &Context, list: &str) -> Result<(), TransportError> {
    let transports = transports(context)?;
    let used = devices(&transports);
    // Of other transports it takes a second look to tell whether they are a network's.
    let (mut sure, network) = (transports.clone(), ["tcp/", "rc", "dc", "ud"]);
    sure.retain(|name| network.iter().any(|kind| name.starts_with(kind)));
    if names(list).next().is_some() && unknown(list, &devices(&sure)).is_empty() {
        return Ok(());
    }
    let Survey { devices, .. } = Survey::take()?;
    let excludes = list.starts_with(NEGATION);
    if excludes && devices.iter().any(|device| used.contains(device)) {
        return Ok(());
    }
    Err(TransportError::NoDevice {
        named: match unknown(list, &devices) {
            none if none.is_empty() => list.to_owned(),
            unknown => unknown.join(", "),
        },
        there: devices.join(", "),
    })
}

/// The devices of transports as UCX writes them: `tcp/eth0`.
pub(super) fn devices(transports: &[String]) -> Vec<String> {
    let mut devices: Vec<String> = transports
        .iter()
        .filter_map(|transport| Some(transport.split_once('/')?.1.to_owned()))
        .collect();
    devices.sort();
    devices.dedup();
    devices
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::worker::Worker;
    use super::*;
    use crate::road::Targets;

    #[test]
    fn names_are_compared_as_ucx_does() {
        let transports = ["tcp/lo", "tcp/eth0", "rc_mlx5/mlx5_0:1", "ud/mlx5_0:1"];
        let there = devices(&transports.map(str::to_owned));
        assert_eq!(there, ["eth0", "lo", "mlx5_0:1"]);
        for known in ["lo", "lo,eth0", "mlx5_0:1", "all", "all,lo", "lo,,eth0", ""] {
            assert_eq!(unknown(known, &there), [""; 0], "{known}");
        }
        for (list, name) in [
            ("nic9", "nic9"),
            ("lo,nic9", "nic9"),
            ("all,nic9", "nic9"),
            ("lo, eth0", " eth0"),
            ("mlx5_0", "mlx5_0"),
            ("mlx5_0:2", "mlx5_0:2"),
            ("lo:1", "lo:1"),
            ("eth*", "eth*"),
            ("^lo", "^lo"),
            ("LO", "LO"),
        ] {
            assert_eq!(unknown(list, &there), [name], "{list}");
        }
    }

    /// The UCX of this machine agrees about what it takes from a list.
    #[test]
    fn a_list_of_known_names_and_no_other_is_used_by_ucx() {
        for (list, fits) in [
            ("lo", true),
            ("all", true),
            ("lo,lo", true),
            ("lo ", false),
            ("lo:1", false),
            ("l*", false),
            ("[l]o", false),
            ("LO", false),
            ("nic9", false),
        ] {
            let context = Context::new(&[(NET_DEVICES, list)]).unwrap();
            let used = devices(&transports(&context).unwrap());
            assert_eq!(used.iter().any(|device| device == "lo"), fits, "{list}");
            assert_eq!(check(&context, list).is_ok(), fits, "{list}");
        }
    }

    #[test]
    fn one_wrong_name_among_right_ones_is_an_error_that_says_which_there_are() {
        for (list, named) in [
            ("nic9", "nic9"),
            ("lo,nic9,nic8", "nic9, nic8"),
            ("", ""),
            (",", ","),
        ] {
            let error = Worker::new(&[(NET_DEVICES, list)], Targets::default())
                .err()
                .unwrap();
            let text = error.to_string();
            let says = format!("UCX has no network device `{named}` here; there are: ");
            let there = text.strip_prefix(&says).unwrap();
            assert!(there.split(", ").any(|device| device == "lo"), "{text}");
        }
        assert!(Worker::new(&[(NET_DEVICES, "lo")], Targets::default()).is_ok());
    }
}
