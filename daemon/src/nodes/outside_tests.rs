#![allow(clippy::unwrap_used)]
#[path = "../../tests/issuer/mod.rs"]
mod issuer;

use super::*;
use crate::nodes::{Authorities, JobSecret, Members, MembersError};
use crate::state::StateDir;
use issuer::SiteAuthority;
use robust_identity::Fingerprint;
use std::os::unix::fs::{PermissionsExt, symlink};

const B: &str = "spiffe://site.example/demo/node/b";

fn paths(folder: &Path) -> OutsidePaths {
    let [certificate, key, authority] = issuer::files(folder);
    OutsidePaths {
        certificate,
        key,
        authority,
    }
}

fn of(pem: &str) -> Fingerprint {
    Fingerprint::of_pem(pem).unwrap()
}

#[test]
fn files_that_are_made_anew_are_used_from_then_on_also_behind_links_as_kubernetes_has_them() {
    let temp = tempfile::tempdir().unwrap();
    let (site, at) = (SiteAuthority::new(), |name: &str| temp.path().join(name));
    let first = site.write(&at("..1"), B);
    symlink("..1", at("..data")).unwrap();
    let mount = at("mount");
    fs::create_dir(&mount).unwrap();
    for path in issuer::files(&mount) {
        let name = path.file_name().unwrap().to_owned();
        symlink(at("..data").join(name), path).unwrap();
    }
    let files = OutsideFiles::of_node(paths(&mount), None).unwrap();
    assert_eq!(files.name(), "b");
    assert_eq!(files.current().fingerprint(), of(&first));
    let second = site.write(&at("..2"), B);
    symlink("..2", at("..next")).unwrap();
    fs::rename(at("..next"), at("..data")).unwrap();
    assert_eq!(files.current().fingerprint(), of(&second));
    // In their places, as other programs write.
    let third = site.write(&at("..2"), B);
    assert_eq!(files.clone().current().fingerprint(), of(&third));
}

#[test]
fn files_that_are_torn_missing_or_anothers_leave_in_use_what_was_read_before() {
    let temp = tempfile::tempdir().unwrap();
    let site = SiteAuthority::new();
    let folder = temp.path();
    let first = of(&site.write(folder, B));
    let files = OutsideFiles::of_node(paths(folder), Some("b")).unwrap();
    let used = || files.current().fingerprint();
    let (next, key) = site.issue(B);
    let [at_certificate, at_key, _] = issuer::files(folder);
    fs::write(&at_certificate, &next[..next.len() / 2]).unwrap();
    assert_eq!(used(), first, "half of it");
    fs::write(&at_certificate, &next).unwrap();
    assert_eq!(used(), first, "the key is still the one before");
    fs::remove_file(&at_key).unwrap();
    assert_eq!(used(), first);
    fs::write(&at_key, &key).unwrap();
    fs::set_permissions(&at_key, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(used(), first, "everybody may read it");
    fs::set_permissions(&at_key, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(used(), of(&next), "both are there");
    site.write(folder, "spiffe://site.example/demo/node/c");
    assert_eq!(used(), of(&next), "they are another node's");
}

#[test]
fn a_certificate_of_another_name_or_kind_and_a_key_for_everybody_are_refused_with_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path();
    SiteAuthority::new().write(folder, B);
    let said = |files: Result<OutsideFiles, OutsideFilesError>| files.unwrap_err().to_string();
    let refused = said(OutsideFiles::of_node(paths(folder), Some("c")));
    assert!(refused.contains("node `b`"), "{refused}");
    assert!(refused.contains("joins as `c`"), "{refused}");
    let refused = said(OutsideFiles::of_leader(paths(folder)));
    assert!(refused.contains("ends with control/NAME"), "{refused}");
    let [certificate, key, _] = issuer::files(folder);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o604)).unwrap();
    let refused = said(OutsideFiles::of_node(paths(folder), None));
    assert!(refused.contains("chmod o="), "{refused}");
    assert!(refused.contains("defaultMode: 0440"), "{refused}");
    fs::remove_file(certificate).unwrap();
    let refused = said(OutsideFiles::of_node(paths(folder), None));
    assert!(refused.starts_with("--certificate /"), "{refused}");
}

#[test]
fn a_name_that_never_joined_can_be_refused_where_nodes_come_from_outside_and_nowhere_else() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("certificates");
    SiteAuthority::new().write(&folder, "robust://demo/control/a");
    let files = OutsideFiles::of_leader(paths(&folder)).unwrap();
    let state = StateDir::make(&temp.path().join("state")).unwrap();
    let authorities = Authorities::open(&state, JobSecret::of("secret"), "demo", true).unwrap();
    let open = |outside| Members::open(&state.joins(), &authorities, None, outside).unwrap();
    let refused = open(None).revoke_node("c", 0).unwrap_err();
    assert!(matches!(refused, MembersError::Unknown { .. }), "{refused}");
    open(Some(files.clone())).revoke_node("c", 0).unwrap();
    let kept = || fs::read_to_string(state.joins()).unwrap().contains("\"c\"");
    assert!(kept());
    let refused = open(Some(files.clone())).revoke_node("", 0).unwrap_err();
    assert!(matches!(refused, MembersError::Bounds(_)), "{refused}");
    // A token for another node changes nothing.
    let node = |name: &str| Some(name.to_owned());
    open(None).create(node("d"), 1, 0).unwrap();
    assert!(kept());
    open(None).create(node("c"), 1, 0).unwrap();
    open(None).create(None, 1, 10_000).unwrap();
    assert!(!kept());
}
