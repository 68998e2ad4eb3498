//! The folder of one robustd's groups.
use super::clear;
use super::error::{GroupError, GroupsError};
use super::life::{Group, MemoryLimit, Reached};
use super::limits::{Controller, GroupLimits, Setting};
use super::mounts::{Hierarchy, Mounts};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The group that robustd itself is in, next to its folder, where controllers are handed down.
const OWN: &str = "robustd";
/// Those of version 1 that are of use; where there is no version 2, the first that can be had is to end lives.
const CONTROLLERS: [&str; 4] = ["freezer", "pids", "memory", "cpu"];
/// How long what is killed at the beginning may take to die.
const DYING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);

/// The groups of one robustd: those of one state directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Groups {
    name: String,
    /// Where its folder of version 2 is, if there may be one.
    unified: Option<PathBuf>,
    /// Where its folders of version 1 are, by controller.
    version_1: BTreeMap<&'static str, PathBuf>,
    prepared: Arc<Mutex<Option<Prepared>>>,
}

/// What can be made.
#[derive(Clone, Debug, Default)]
struct Prepared {
    unified: bool,
    /// Controllers that groups of version 2 have.
    handed_down: BTreeSet<Controller>,
    /// Controllers, and `freezer`, of version 1 of which every life has a group.
    version_1: BTreeSet<&'static str>,
}

impl fmt::Display for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unified = self.unified.then_some("version 2");
        let v1 = self.version_1.iter().copied().collect::<Vec<_>>();
        let v1 = (!v1.is_empty()).then(|| format!("version 1 ({})", v1.join(", ")));
        let all: Vec<String> = unified.map(str::to_owned).into_iter().chain(v1).collect();
        f.write_str(&all.join(" and "))
    }
}

impl Groups {
    /// Of a robustd that has groups of this name, where these are mounted. Nothing is made yet.
    pub fn of(mounts: &Mounts, name: &str) -> Self {
        let base = |h: &Hierarchy| match h.own.file_name() {
            Some(last) if last == OWN && h.own != h.mount => h.own.parent().map(Path::to_owned),
            _ => Some(h.own.clone()),
        };
        let v1 = CONTROLLERS.into_iter().filter_map(|controller| {
            let hierarchy = mounts.of_version_1(controller)?;
            Some((controller, hierarchy.own.join(name)))
        });
        let unified = mounts.unified.as_ref().and_then(base);
        Self {
            name: name.to_owned(),
            unified: unified.map(|base| base.join(name)),
            version_1: v1.collect(),
            prepared: Arc::default(),
        }
    }

    /// Makes the folders, and sees that groups in them can limit this; says which versions they are of.
    pub fn prepare(
        &self,
        limits: impl IntoIterator<Item = Controller>,
    ) -> Result<String, GroupsError> {
        let prepared = self.find_out(limits, hand_down)?;
        let said = prepared.to_string();
        *self.prepared() = Some(prepared);
        Ok(said)
    }

    /// Whether it could prepare this, without handing controllers down or leaving anything.
    pub fn permitted(
        &self,
        limits: impl IntoIterator<Item = Controller>,
    ) -> Result<String, GroupsError> {
        let prepared = self.find_out(limits, may_hand_down);
        self.forget();
        prepared.map(|prepared| prepared.to_string())
    }

    fn find_out(
        &self,
        limits: impl IntoIterator<Item = Controller>,
        hand_down: impl Fn(&Path, Controller) -> Result<bool, String>,
    ) -> Result<Prepared, GroupsError> {
        let mut prepared = Prepared::default();
        let mut why = Vec::new();
        let mut made = |folder: &Path| match make(folder) {
            Ok(()) => true,
            Err(error) => {
                why.push(format!("{}: {error}", folder.display()));
                false
            }
        };
        prepared.unified = self.unified.as_deref().is_some_and(&mut made);
        if !prepared.unified {
            let names = CONTROLLERS.into_iter();
            let of_version_1 = names.filter_map(|name| Some((name, self.version_1.get(name)?)));
            let first = of_version_1.into_iter().find(|(_, folder)| made(folder));
            prepared.version_1.extend(first.map(|(name, _)| name));
            if first.is_none() {
                let why = match why.is_empty() {
                    true => "none are mounted, or not those that robustd is in".to_owned(),
                    false => why.join("; "),
                };
                return Err(GroupsError::NoneHere { why });
            }
        }
        for controller in limits {
            self.limit(&mut prepared, controller, &hand_down)
                .map_err(|why| GroupsError::NoController { controller, why })?;
        }
        Ok(prepared)
    }

    /// Has a controller limit what lives use; why it cannot else.
    fn limit(
        &self,
        prepared: &mut Prepared,
        controller: Controller,
        hand_down: impl Fn(&Path, Controller) -> Result<bool, String>,
    ) -> Result<(), String> {
        let name = controller.name();
        let of_version_2 = match &self.unified {
            Some(folder) if prepared.unified => hand_down(folder, controller),
            _ => Ok(false),
        };
        let why = match of_version_2 {
            Ok(true) => {
                prepared.handed_down.insert(controller);
                return Ok(());
            }
            Ok(false) => "version 2 has no such controller here".to_owned(),
            Err(why) => why,
        };
        let Some(folder) = self.version_1.get(name) else {
            return Err(format!("{why}; version 1 is not mounted with it"));
        };
        make(folder).map_err(|e| format!("{why}; {}: {e}", folder.display()))?;
        prepared.version_1.insert(name);
        Ok(())
    }

    /// A group for a life, with nothing in it. One of this name that is there is an earlier life's, and is ended.
    pub fn make(&self, name: &str, limits: &GroupLimits) -> Result<Group, GroupError> {
        let prepared = self.prepared().clone().ok_or(GroupError::NotPrepared)?;
        let mut group = self.named(name, |of| prepared.version_1.contains(of));
        if !prepared.unified {
            group.unified = None;
        }
        let made = self.make_whole(&mut group, &prepared, limits);
        if made.is_err() {
            // Nobody is in it.
            let _ = group.remove();
        }
        made.map(|()| group)
    }

    fn make_whole(
        &self,
        group: &mut Group,
        prepared: &Prepared,
        limits: &GroupLimits,
    ) -> Result<(), GroupError> {
        for folder in group.unified.iter().chain(&group.version_1) {
            make_anew(folder)?;
        }
        for controller in limits.controllers() {
            let v1 = self.version_1.get(controller.name());
            let (folder, settings) = match (&group.unified, v1) {
                (Some(unified), _) if prepared.handed_down.contains(&controller) => {
                    (unified.clone(), limits.of_version_2(controller))
                }
                (_, Some(v1)) => (v1.join(&group.name), limits.of_version_1(controller)),
                _ => return Err(GroupError::NotPrepared),
            };
            settings.iter().try_for_each(|s| write(&folder, s))?;
        }
        group.memory = self.memory_of(group);
        Ok(())
    }

    /// The group of a life that an earlier robustd began, if it is there.
    pub fn find(&self, name: &str) -> Option<Group> {
        let mut group = self.named(name, |_| true);
        group.unified = group.unified.filter(|folder| folder.is_dir());
        group.version_1.retain(|folder| folder.is_dir());
        group.freezer = group.freezer.filter(|folder| folder.is_dir());
        group.memory = self.memory_of(&group);
        (group.unified.is_some() || !group.version_1.is_empty()).then_some(group)
    }

    /// The same for a life whose process is known. An earlier robustd that was started from elsewhere, as from another
    /// login, had its folder elsewhere.
    pub fn find_of(&self, name: &str, pid: u32) -> Option<Group> {
        self.find(name).or_else(|| {
            let there = Mounts::of_process(pid).ok()?;
            let ours = Path::new(&self.name).join(name);
            let mut elsewhere = self.clone();
            let folder = |h: &Hierarchy| {
                let is_ours = h.own.ends_with(&ours);
                h.own.parent().filter(|_| is_ours).map(Path::to_owned)
            };
            elsewhere.unified = there.unified.as_ref().and_then(folder);
            let v1 = CONTROLLERS.into_iter().filter_map(|controller| {
                let hierarchy = there.of_version_1(controller)?;
                Some((controller, folder(hierarchy)?))
            });
            elsewhere.version_1 = v1.collect();
            elsewhere.find(name)
        })
    }

    /// The group of ours that a process is in, where its name begins so.
    pub fn find_around(&self, pid: u32, prefix: &str) -> Option<Group> {
        let there = Mounts::of_process(pid).ok()?;
        let v1 = CONTROLLERS.into_iter();
        let v1 = v1.filter_map(|controller| there.of_version_1(controller));
        let mut all = there.unified.iter().chain(v1);
        let name = all.find_map(|hierarchy| {
            let ours = hierarchy.own.parent()?.file_name()? == self.name.as_str();
            let name = hierarchy.own.file_name()?.to_str()?;
            (ours && name.starts_with(prefix)).then(|| name.to_owned())
        })?;
        self.find_of(&name, pid)
    }

    fn named(&self, name: &str, is_in: impl Fn(&str) -> bool) -> Group {
        let v1 = self.version_1.iter().filter(|(of, _)| is_in(of));
        // Two controllers may be of one hierarchy.
        let version_1: BTreeSet<PathBuf> = v1.map(|(_, folder)| folder.join(name)).collect();
        let freezer = self.version_1.get("freezer").filter(|_| is_in("freezer"));
        Group {
            name: name.to_owned(),
            unified: self.unified.as_ref().map(|folder| folder.join(name)),
            version_1: version_1.into_iter().collect(),
            freezer: freezer.map(|folder| folder.join(name)),
            memory: None,
        }
    }

    /// What a group says of its memory; without a limit it says a number that no machine has, or none.
    fn memory_of(&self, group: &Group) -> Option<MemoryLimit> {
        const NO_LIMIT: u64 = 1 << 62;
        let limit = |path: PathBuf| {
            let text = fs::read_to_string(path).ok()?;
            let bytes = text.trim().parse().ok();
            bytes.filter(|bytes: &u64| *bytes < NO_LIMIT)
        };
        let of_version_2 = group.unified.as_ref().and_then(|folder| {
            let events = folder.join("memory.events");
            Some(MemoryLimit {
                bytes: limit(folder.join("memory.max"))?,
                kills: events.clone(),
                reached: Reached::Events(events),
            })
        });
        let of_version_1 = || {
            let folder = self.version_1.get("memory")?.join(&group.name);
            Some(MemoryLimit {
                bytes: limit(folder.join("memory.limit_in_bytes"))?,
                kills: folder.join("memory.oom_control"),
                reached: Reached::MostUsed(folder.join("memory.max_usage_in_bytes")),
            })
        };
        of_version_2.or_else(of_version_1)
    }

    /// The names of all lives whose groups are there.
    pub fn lives(&self) -> BTreeSet<String> {
        let groups = self.folders().flat_map(|folder| clear::folders(folder));
        let names = groups.filter_map(|g| Some(g.file_name()?.to_str()?.to_owned()));
        names.collect()
    }

    /// Ends the groups of all lives but these, with whatever is in them: a robustd that died left them. Blocks
    /// until nobody is in them, two seconds at most. The names of those in which somebody was are returned.
    pub fn sweep(&self, living: &BTreeSet<String>) -> Vec<String> {
        let names = self.lives();
        let strangers = names.difference(living).filter_map(|name| self.find(name));
        let mut left: Vec<Group> = strangers.collect();
        let inhabited = left.iter().filter(|group| !group.members().is_empty());
        let inhabited = inhabited.map(|group| group.name.clone()).collect();
        let until = Instant::now() + DYING;
        loop {
            left.retain(|group| {
                group.kill();
                !group.remove().unwrap_or(true)
            });
            if left.is_empty() || Instant::now() > until {
                break;
            }
            std::thread::sleep(LOOK);
        }
        for group in left {
            tracing::warn!(
                "the control group of {} does not end: {:?} are in it",
                group.name,
                group.members()
            );
        }
        inhabited
    }

    /// Removes the folders where no life is left in them.
    pub fn forget(&self) {
        for folder in self.folders() {
            // Somebody lives in it, or it was never made.
            let _ = fs::remove_dir(folder);
        }
    }

    /// Its name among those of other robustds.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        self.unified.iter().chain(self.version_1.values())
    }

    fn prepared(&self) -> MutexGuard<'_, Option<Prepared>> {
        let prepared = self.prepared.lock();
        prepared.unwrap_or_else(PoisonError::into_inner)
    }
}

fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Makes a group, in the place of an earlier one if need be.
fn make_anew(folder: &Path) -> Result<(), GroupError> {
    let path = || folder.to_owned();
    let make = |source| GroupError::Make {
        path: path(),
        source,
    };
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(make),
    }
    let until = Instant::now() + DYING;
    clear::kill_unified(folder);
    while !clear::remove(folder).map_err(make)? {
        if Instant::now() > until {
            return Err(GroupError::InUse { path: path() });
        }
        clear::kill_unified(folder);
        std::thread::sleep(LOOK);
    }
    fs::create_dir(folder).map_err(make)
}

fn write(folder: &Path, setting: &Setting) -> Result<(), GroupError> {
    let path = folder.join(setting.file);
    if setting.may_be_missing && !path.exists() {
        return Ok(());
    }
    fs::write(&path, &setting.value).map_err(|source| GroupError::Limit {
        value: setting.value.clone(),
        path,
        source,
    })
}

/// Has the groups in a folder of version 2 have a controller. False where the kernel does not have it in this
/// version; an error says why it is not handed down.
fn hand_down(folder: &Path, controller: Controller) -> Result<bool, String> {
    let name = controller.name();
    let Some(base) = folder.parent() else {
        return Ok(false);
    };
    if !has(base, "cgroup.controllers", name) {
        return Ok(false);
    }
    let order = format!("+{name}");
    for group in [base, folder] {
        if has(group, "cgroup.subtree_control", name) {
            continue;
        }
        let file = group.join("cgroup.subtree_control");
        let mut written = fs::write(&file, &order);
        // Somebody is in it.
        if group == base
            && written
                .as_ref()
                .is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
        {
            step_aside(base)?;
            written = fs::write(&file, &order);
        }
        written.map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(true)
}

/// Whether it could be tried.
fn may_hand_down(folder: &Path, controller: Controller) -> Result<bool, String> {
    let Some(base) = folder.parent() else {
        return Ok(false);
    };
    if !has(base, "cgroup.controllers", controller.name()) {
        return Ok(false);
    }
    let file = base.join("cgroup.subtree_control");
    let opened = fs::OpenOptions::new().append(true).open(&file);
    opened.map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(true)
}

/// Goes into a group of its own below the one it is in, if nobody else is in that.
pub(super) fn step_aside(base: &Path) -> Result<(), String> {
    let own = std::process::id();
    let others = clear::members(base).into_iter().filter(|pid| *pid != own);
    let others: Vec<String> = others.map(|pid| pid.to_string()).collect();
    if !others.is_empty() {
        return Err(format!(
            "{} has processes besides robustd ({}), so it cannot hand controllers down",
            base.display(),
            others.join(", ")
        ));
    }
    let said = |what: &Path, e: io::Error| format!("{}: {e}", what.display());
    let aside = base.join(OWN);
    make(&aside).map_err(|e| said(&aside, e))?;
    let procs = aside.join("cgroup.procs");
    fs::write(&procs, own.to_string()).map_err(|e| said(&procs, e))
}

fn has(group: &Path, file: &str, controller: &str) -> bool {
    let text = fs::read_to_string(group.join(file)).unwrap_or_default();
    text.split_whitespace().any(|name| name == controller)
}
