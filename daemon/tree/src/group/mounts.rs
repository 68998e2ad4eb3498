//! Where control groups are mounted, and in which of them this process is.
use super::limits::Controller;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is mounted here. Of hierarchies that are not mounted, or of which another part is, nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// The hierarchy of version 2.
    pub(super) unified: Option<Hierarchy>,
    /// Those of version 1, each with its controllers.
    pub(super) version_1: Vec<(Vec<String>, Hierarchy)>,
}

/// A hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The folder of the group that this process is in.
    pub own: PathBuf,
}

impl Mounts {
    /// Those that this process sees.
    pub fn here() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        Ok(Self::of(&mounts, &groups))
    }

    /// The same for the groups that another process is in.
    pub(super) fn of_process(pid: u32) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        Ok(Self::of(&mounts, &groups))
    }

    /// As the texts of `/proc/self/mountinfo` and `/proc/self/cgroup` say it (proc_pid_mountinfo(5), cgroups(7)).
    pub fn of(mounts: &str, groups: &str) -> Self {
        let mounted: Vec<Mount> = mounts.lines().filter_map(Mount::read).collect();
        let mut found = Self::default();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            if controllers.is_empty() {
                let mut of = mounted.iter().filter(|m| m.controllers.is_none());
                found.unified = of.find_map(|mount| mount.hierarchy(path));
                continue;
            }
            let controllers: Vec<String> = controllers.split(',').map(str::to_owned).collect();
            let is_it = |m: &&Mount| {
                let of = m.controllers.as_ref();
                of.is_some_and(|of| controllers.iter().all(|c| of.contains(c)))
            };
            let hierarchy = mounted.iter().filter(is_it).find_map(|m| m.hierarchy(path));
            found
                .version_1
                .extend(hierarchy.map(|of| (controllers, of)));
        }
        found
    }

    /// The hierarchy of version 1 that has a controller.
    pub(super) fn of_version_1(&self, controller: &str) -> Option<&Hierarchy> {
        let mut all = self.version_1.iter();
        let found = all.find(|(of, _)| of.iter().any(|name| name == controller));
        found.map(|(_, hierarchy)| hierarchy)
    }

    /// The same without version 2, as where it is not mounted.
    #[must_use]
    pub fn without_version_2(self) -> Self {
        Self {
            unified: None,
            ..self
        }
    }

    /// The folder of this process's group in the hierarchy that has a controller, of either version.
    pub fn own(&self, controller: Controller) -> Option<&Path> {
        let v1 = self.of_version_1(controller.name());
        v1.or(self.unified.as_ref()).map(|of| of.own.as_path())
    }
}

struct Mount {
    /// Which part of the hierarchy.
    root: String,
    at: PathBuf,
    /// Of version 1.
    controllers: Option<Vec<String>>,
}

impl Mount {
    fn read(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, at) = (unescaped(before.next()?), unescaped(before.next()?));
        let mut after = after.split(' ');
        let kind = after.next()?;
        let options = after.nth(1)?.split(',').map(str::to_owned);
        let controllers = match kind {
            "cgroup2" => None,
            "cgroup" => Some(options.collect()),
            _ => return None,
        };
        Some(Self {
            root,
            at: at.into(),
            controllers,
        })
    }

    /// None where the group of this path is not in the part that is mounted.
    fn hierarchy(&self, path: &str) -> Option<Hierarchy> {
        let below = Path::new(path).strip_prefix(&self.root).ok()?;
        // A group that is not below the root of this process's namespace; also one that was removed.
        let strange = path.starts_with("/..") || path.ends_with(" (deleted)");
        (!strange).then(|| Hierarchy {
            own: match below.as_os_str().is_empty() {
                true => self.at.clone(),
                false => self.at.join(below),
            },
            mount: self.at.clone(),
        })
    }
}

/// Blanks, tabs, line ends and backslashes stand there as octal numbers.
fn unescaped(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .into_iter()
        .fold(text.to_owned(), |text, (escape, of)| {
            text.replace(escape, of)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(mounts: &Mounts) -> String {
        let unified = mounts.unified.iter().map(|h| ("2".to_owned(), h));
        let v1 = mounts.version_1.iter().map(|(of, h)| (of.join(","), h));
        let all = unified
            .chain(v1)
            .map(|(name, h)| format!("{name}:{}", h.own.display()));
        all.collect::<Vec<_>>().join(" ")
    }

    /// Fedora 41, a service of systemd's.
    #[test]
    fn version_2_alone_as_systemd_mounts_it() {
        let mounts = "25 61 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:2 - sysfs sysfs rw\n\
                      29 25 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 \
                      rw,nsdelegate,memory_recursiveprot\n";
        let groups = "0::/system.slice/system-robustd.slice/robustd@my-job.service/robustd\n";
        assert_eq!(
            own(&Mounts::of(mounts, groups)),
            "2:/sys/fs/cgroup/system.slice/system-robustd.slice/robustd@my-job.service/robustd"
        );
    }

    /// Debian 10: version 2 without controllers beside version 1.
    #[test]
    fn both_versions_side_by_side() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
                      31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate\n\
                      32 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:11 - cgroup cgroup rw,xattr,name=systemd\n\
                      36 30 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct\n\
                      38 30 0:34 / /sys/fs/cgroup/memory rw,nosuid shared:17 - cgroup cgroup rw,memory\n";
        let groups = "9:cpu,cpuacct:/user.slice\n8:pids:/x\n4:memory:/user.slice/user-0.slice\n\
                      1:name=systemd:/user.slice\n0::/user.slice\n";
        let mounts = Mounts::of(mounts, groups);
        assert_eq!(
            own(&mounts),
            "2:/sys/fs/cgroup/unified/user.slice cpu,cpuacct:/sys/fs/cgroup/cpu,cpuacct/user.slice \
             memory:/sys/fs/cgroup/memory/user.slice/user-0.slice \
             name=systemd:/sys/fs/cgroup/systemd/user.slice"
        );
        let cpu = mounts.of_version_1("cpu").map(|h| h.mount.clone());
        assert_eq!(cpu, Some("/sys/fs/cgroup/cpu,cpuacct".into()));
        assert_eq!(mounts.of_version_1("pids"), None, "it is not mounted");
        assert_eq!(mounts.clone().without_version_2().unified, None);
        assert!(mounts.own(Controller::Memory).is_some());
    }

    /// Docker 20 without a namespace of control groups: the container sees its own part under the host's path.
    #[test]
    fn a_container_that_sees_its_own_part() {
        let mounts = "900 890 0:28 /docker/4be1 /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n\
                      901 890 0:29 / /mnt/with\\040blank rw - cgroup cgroup rw,pids\n";
        let groups = "4:memory:/docker/4be1\n3:pids:/docker/4be1\n";
        assert_eq!(
            own(&Mounts::of(mounts, groups)),
            "memory:/sys/fs/cgroup/memory pids:/mnt/with blank/docker/4be1"
        );
        let elsewhere = "4:memory:/docker/other\n0::/../x\nno line\n";
        assert_eq!(own(&Mounts::of(mounts, elsewhere)), "");
    }
}
