//! What a child does not see of files that its user may read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod common;

use common::{Bench, hosted, hosted_without_rights, spec, until};
use robust_tree::{Child, ChildSpec, Hidden, NotHidden, Policy, StartError, User, UserError, Way};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with a secret, folders of two children, and a file for both.
struct Scene {
    dir: TempDir,
    hidden: Hidden,
}

impl Scene {
    fn new(user: Option<User>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        for (path, text) in [
            ("secret", "s"),
            ("own/a/note", "n"),
            ("own/b/note", "m"),
            ("key", "k"),
        ] {
            let path = state.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let hidden = Hidden {
            kept: vec![state.join("own/a"), state.join("key")],
            covered: vec![state],
            user,
        };
        Self { dir, hidden }
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// A shell that runs this script within the scene.
    fn child(&self, script: &str) -> Result<Child, StartError> {
        let state = self.state().display().to_string();
        let dir = self.dir.path();
        let argv = ["sh", "-c", script, "sh", &state];
        Child::start(ChildSpec {
            hidden: Some(self.hidden.clone()),
            ..spec(dir, &argv, None)
        })
    }

    /// What the script says behind `said=`.
    fn says(self, script: &str) -> String {
        let child = self.child(script).unwrap();
        Bench::watch(child, self.dir, Policy::default()).said("said")
    }
}

/// Where this system hides nothing, that is recorded.
fn permitted(scene: &Scene) -> bool {
    match scene.hidden.permitted() {
        Ok(()) => true,
        Err(refused) => {
            robust_needs::skip(refused, "run the tests where user namespaces are permitted");
            false
        }
    }
}

/// Everything below the state directory, and all that can be had of the parent's processes.
const LOOK: &str = r#"
state=$1; cd $state
files=$(find . -type f | sort | tr '\n' ' ')
for file in environ mem maps root/$state/secret cwd/state/secret fd/0; do
  (: < /proc/$PPID/$file) 2> /dev/null && files="$files parent:$file"
done
readlink /proc/$PPID/fd/1 > /dev/null 2>&1 && files="$files parent:fd"
(echo x > $state/new) 2> /dev/null && files="$files writes"
umount $state 2> /dev/null && files="$files umounts"
unshare --user --map-root-user --mount sh -c "umount $state 2>/dev/null; cat $state/secret" > /dev/null 2>&1 && files="$files unshares"
echo mine > own/a/mine && files="$files own"
echo "said=$files"
"#;

#[test]
fn a_child_without_rights_sees_of_a_hidden_folder_what_is_its_own() {
    let test = "a_child_without_rights_sees_of_a_hidden_folder_what_is_its_own";
    hosted_without_rights(test, || {
        let scene = Scene::new(None);
        if !permitted(&scene) {
            return;
        }
        // What it would see: the same look finds it.
        let argv = ["sh", "-c", LOOK, "sh", &scene.state().display().to_string()];
        let dir = tempfile::tempdir().unwrap();
        let seeing = Child::start(spec(dir.path(), &argv, None)).unwrap();
        let said = Bench::watch(seeing, dir, Policy::default()).said("said");
        for found in [
            "./secret",
            "./own/b/note",
            "parent:environ",
            "parent:mem",
            "parent:root",
            "parent:fd",
            "writes",
        ] {
            assert!(said.contains(found), "{found}: {said}");
        }
        for made in ["new", "own/a/mine"] {
            fs::remove_file(scene.state().join(made)).unwrap();
        }
        let state = scene.state();
        let child = scene.child(LOOK).unwrap();
        let bench = Bench::watch(child, scene.dir, Policy::default());
        assert_eq!(bench.said("said"), "./key ./own/a/note  own");
        // What it wrote into its own folder is there, and what it was hidden from as well.
        assert_eq!(
            fs::read_to_string(state.join("own/a/mine")).unwrap(),
            "mine\n"
        );
        assert_eq!(fs::read_to_string(state.join("secret")).unwrap(), "s");
    });
}

#[test]
fn a_hidden_folder_and_a_network_of_its_own_go_together() {
    let test = "a_hidden_folder_and_a_network_of_its_own_go_together";
    hosted_without_rights(test, || {
        let scene = Scene::new(None);
        if !permitted(&scene) {
            return;
        }
        let script = "echo said=$(ls $1) $(ls /sys/class/net | wc -l); sleep 1000";
        let state = scene.state().display().to_string();
        let mut child = Child::start(ChildSpec {
            hidden: Some(scene.hidden.clone()),
            ..spec(
                scene.dir.path(),
                &["sh", "-c", script, "sh", &state],
                Some(Way::UserNamespace),
            )
        })
        .unwrap();
        assert!(child.take_namespace().is_some());
        let bench = Bench::watch(child, scene.dir, Policy::default());
        assert!(bench.said("said").starts_with("key own "));
    });
}

/// Root and a user who may look at nothing of root's.
fn another() -> Option<User> {
    if !rustix::process::geteuid().is_root() {
        robust_needs::skip("no other user can be played", robust_needs::ROOT);
        return None;
    }
    Some(User::find("nobody").unwrap())
}

#[test]
fn a_child_of_root_is_another_user_and_sees_what_is_its_own() {
    let test = "a_child_of_root_is_another_user_and_sees_what_is_its_own";
    hosted(test, || {
        let Some(user) = another() else { return };
        let (uid, gid) = (user.uid(), user.gid());
        let scene = Scene::new(Some(user));
        if !permitted(&scene) {
            return;
        }
        // Nobody else gets into the folder around it, and this one does.
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(scene.state(), closed).unwrap();
        open_to_all(scene.dir.path());
        chown(scene.state().join("own/a"), Some(uid), Some(gid)).unwrap();
        let script = format!("{LOOK}\nid -u > $state/own/a/uid");
        let state = scene.state();
        let child = scene.child(&script).unwrap();
        let bench = Bench::watch(child, scene.dir, Policy::default());
        assert_eq!(bench.said("said"), "./key ./own/a/note  own");
        until("it wrote who it is", || {
            fs::read_to_string(state.join("own/a/uid")).is_ok_and(|of| of.ends_with('\n'))
        });
        let said = fs::read_to_string(state.join("own/a/uid")).unwrap();
        assert_eq!(said.trim(), uid.to_string());
    });
}

#[test]
fn two_children_of_the_same_user_do_not_look_into_each_other() {
    let test = "two_children_of_the_same_user_do_not_look_into_each_other";
    hosted(test, || {
        let Some(user) = another() else { return };
        let scene = Scene::new(Some(user.clone()));
        if !permitted(&scene) {
            return;
        }
        open_to_all(scene.dir.path());
        let other = scene.child("exec sleep 1000").unwrap();
        let pid = other.pid();
        until("it runs its program", || {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
        });
        let look = format!(
            "for f in environ mem root/etc/passwd fd/1; do (: < /proc/{pid}/$f) 2> /dev/null && found=$found:$f; done; \
             kill -0 {pid} && echo said=it is $(id -u)$found"
        );
        assert_eq!(scene.says(&look), format!("it is {}", user.uid()));
        drop(other);
    });
}

fn open_to_all(folder: &Path) {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder, open).unwrap();
}

#[test]
fn nothing_is_hidden_from_root() {
    let test = "nothing_is_hidden_from_root";
    hosted(test, || {
        if another().is_none() {
            return;
        }
        let scene = Scene::new(None);
        let refused = scene.hidden.permitted();
        assert!(matches!(refused, Err(NotHidden::Root)));
        let refused = scene.child("true").unwrap_err().to_string();
        assert!(refused.contains("root sees everything"), "{refused}");
        assert!(matches!(User::find("root"), Err(UserError::Root(_))));
        assert!(matches!(User::find("0"), Err(UserError::Root(_))));
        let unknown = User::find("nobody-of-this-name").unwrap_err().to_string();
        assert_eq!(unknown, "this machine has no user `nobody-of-this-name`");
    });
}

#[test]
fn a_folder_that_is_covered_with_the_one_around_it_is_covered_once() {
    let test = "a_folder_that_is_covered_with_the_one_around_it_is_covered_once";
    hosted_without_rights(test, || {
        let mut scene = Scene::new(None);
        if !permitted(&scene) {
            return;
        }
        scene.hidden.covered.push(scene.state().join("own"));
        scene.hidden.kept.push(scene.state().join("own/a/note"));
        assert_eq!(
            scene.says("echo said=$(cat $1/own/a/note) $(ls $1/own)"),
            "n a"
        );
    });
}
