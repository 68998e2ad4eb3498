//! An authority of one's own, without a daemon.
use super::{err, out, run};
use robust_identity::Outside;
use std::os::unix::fs::PermissionsExt;

#[test]
fn an_authority_of_ones_own_certifies_daemons_which_believe_each_other_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let ca = |args: &[&str]| run(dir.path(), &[&["ca"], args].concat());
    let mode = |name: &str| std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    let site = path("site");
    let made = ca(&["init", &site]);
    assert_eq!(out(&made), format!("{site}/ca.crt\n"), "{}", err(&made));
    assert_eq!(
        (mode("site"), mode("site/ca.key"), mode("site/ca.crt")),
        (0o700, 0o600, 0o644)
    );
    let issue = |daemon: &str, to: &str| {
        let out = path(to);
        ca(&["issue", &site, daemon, "--job", "demo", "--out", &out])
    };
    for (daemon, to) in [("control/a", "a"), ("node/b", "b")] {
        let issued = issue(daemon, to);
        let said = out(&issued);
        assert!(
            said.starts_with(&format!("robust://demo/{daemon} until ")),
            "{said}"
        );
        assert_eq!(mode(&format!("{to}/tls.key")), 0o600);
        let read = |name: &str| std::fs::read_to_string(path(&format!("{to}/{name}"))).unwrap();
        let own = Outside::of(&read("tls.crt"), &read("tls.key"), &read("ca.crt")).unwrap();
        assert_eq!(own.name().to_string(), format!("robust://demo/{daemon}"));
    }
    // Again, in its place: another key.
    let before = std::fs::read(path("b/tls.key")).unwrap();
    assert!(issue("node/b", "b").status.success());
    assert_ne!(std::fs::read(path("b/tls.key")).unwrap(), before);

    let key = std::fs::read(path("site/ca.key")).unwrap();
    for (args, why) in [
        (&["init", &site][..], "is there already"),
        (
            &["issue", &site, "b", "--job", "demo", "--out", &path("c")],
            "is no daemon",
        ),
        (
            &[
                "issue",
                &site,
                "node/b",
                "--job",
                "d/e",
                "--out",
                &path("c"),
            ],
            "is no daemon",
        ),
        (
            &[
                "issue",
                &path("no"),
                "node/b",
                "--job",
                "d",
                "--out",
                &path("c"),
            ],
            "robustctl ca init",
        ),
        (
            &[
                "issue",
                &site,
                "node/b",
                "--job",
                "d",
                "--out",
                &path("c"),
                "--days",
                "0",
            ],
            "--days",
        ),
    ] {
        let refused = ca(args);
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{args:?}: {}",
            err(&refused)
        );
        assert!(err(&refused).contains(why), "{}", err(&refused));
    }
    assert_eq!(std::fs::read(path("site/ca.key")).unwrap(), key);
    assert!(!std::path::Path::new(&path("c")).exists());
}
