//! The program of a trainer's rank: as the rank that it is, or before it is known which one it will be.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use robust_shared::job::{Job, TrainerCommand};
use robust_shared::spare::Handed;
use robust_tree::{Child, Hidden, lend_ports};

use super::{Command, Program, StartError, Values, devices, rollouts};
use crate::gang::{Member, Variables};
use crate::home::Home;

/// A life of a trainer's rank, as its shim was told of it.
#[derive(Debug, Clone, Copy)]
pub struct OfTrainer<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its place in the gang.
    pub member: &'a Member,
    /// Which life of it.
    pub incarnation: u64,
    /// Which life of the gang.
    pub generation: u64,
    /// A folder of its own on the disk.
    pub folder: &'a Path,
    /// Where others reach its host.
    pub advertise: IpAddr,
    /// What its environment has of the gang and of this process.
    pub variables: &'a Variables,
}

/// A program that waits to become a rank, as it was started.
#[derive(Debug, Clone)]
pub struct AsStarted {
    argv: Vec<String>,
    env: Variables,
    cwd: PathBuf,
    hidden: Option<Hidden>,
}

impl AsStarted {
    /// Its command line.
    pub fn argv(&self) -> &[String] {
        &self.argv
    }

    /// The folder that it was started in.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }
}

impl Command {
    /// Fills the command of the trainer in for a life of one of its ranks.
    pub fn of_trainer(
        of: &OfTrainer<'_>,
        command: &TrainerCommand,
        home: &Home,
    ) -> Result<Self, StartError> {
        let ports = lend_ports(command.ports, of.advertise).map_err(StartError::Ports)?;
        let values = Values {
            job: of.job,
            index: of.member.rank,
            incarnation: of.incarnation,
            slots: command.slots,
            ports: &ports,
            bind: of.advertise,
            advertise: of.advertise,
            state: of.folder.to_owned(),
            shm: home.run(),
            socket: None,
            rollouts: rollouts(of.job, of.advertise),
            devices: devices(),
            member: Some(of.member),
            generation: of.generation,
            waits: false,
        };
        Self::of_rank(command, &values, of.variables, home)
    }

    /// Fills the command of the trainer in for a program that waits to become one of its ranks, which is what a rank of
    /// a later gang is started with. What depends on its place is the word that it is not known yet.
    pub fn of_spare(
        job: &Job,
        command: &TrainerCommand,
        variables: &Variables,
        home: &Home,
    ) -> Result<Self, StartError> {
        let values = Values {
            job,
            index: 0,
            incarnation: 0,
            slots: command.slots,
            ports: &[],
            bind: Ipv4Addr::LOCALHOST.into(),
            advertise: Ipv4Addr::LOCALHOST.into(),
            state: PathBuf::new(),
            shm: PathBuf::new(),
            socket: None,
            rollouts: None,
            devices: None,
            member: None,
            generation: LATER,
            waits: true,
        };
        Self::of_rank(command, &values, variables, home)
    }

    fn of_rank(
        command: &TrainerCommand,
        values: &Values<'_>,
        variables: &Variables,
        home: &Home,
    ) -> Result<Self, StartError> {
        let mut argv = command.argv.clone();
        if values.generation >= LATER {
            argv.extend_from_slice(&command.restore_args);
        }
        let program = Program {
            at: "trainer.command".to_owned(),
            argv: &argv,
            env: &command.env,
            inherit: &command.inherit,
            cwd: &command.cwd,
            user: command.user.as_ref(),
        };
        let mut filled = Self::fill(&program, values, (None, None), home)?;
        let own: Vec<_> = filled.env.drain(..).collect();
        // Before its own: who says otherwise in `env` is heard.
        filled.env.extend(variables.clone());
        filled.env.extend(own);
        Ok(filled)
    }

    /// With what it does not see, which was found out already.
    pub fn hiding(self, hidden: Option<Hidden>) -> Self {
        Self { hidden, ..self }
    }

    /// As it will have been started.
    pub fn as_started(&self) -> AsStarted {
        AsStarted {
            argv: self.argv.clone(),
            env: self.env.iter().cloned().collect(),
            cwd: self.cwd.clone(),
            hidden: self.hidden.clone(),
        }
    }

    /// Starts it with a descriptor that it inherits under its number here.
    pub fn start_beside(self, beside: OwnedFd) -> Result<Child, StartError> {
        self.start_with(Some(beside)).map(|(child, _)| child)
    }

    /// What a program that waits is told so that it is this one; a sentence where it cannot be this one.
    pub fn handed_to(&self, waits: &AsStarted) -> Result<Handed, &'static str> {
        if self.argv != waits.argv || self.cwd != waits.cwd {
            return Err("it was started with another command line");
        }
        if !sees_as_much(waits.hidden.as_ref(), self.hidden.as_ref()) {
            return Err("it does not see the folders of this rank");
        }
        // A name that is there twice has its last value.
        let all: Variables = self.env.iter().cloned().collect();
        let new = |(name, value): &(OsString, OsString)| waits.env.get(name) != Some(value);
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let env: Option<Vec<_>> = all.into_iter().filter(new).map(text).collect();
        let env = env.ok_or("a variable of its environment is no text")?;
        let argv = self.argv.clone();
        Ok(Handed { argv, env })
    }
}

/// A gang that is not the first one of its job.
const LATER: u64 = 2;

/// Whether a program from which `has` is hidden sees all that one sees from which `wanted` is, and the same is covered. It
/// may see more of what is kept: one that waited to be any of the ranks goes on seeing the folders of all of them, which
/// are programs of the same job and the same user.
fn sees_as_much(has: Option<&Hidden>, wanted: Option<&Hidden>) -> bool {
    match (has, wanted) {
        (None, None) => true,
        (Some(has), Some(wanted)) => {
            let is_kept = |path: &PathBuf| has.kept.iter().any(|of| path.starts_with(of));
            has.covered == wanted.covered && wanted.kept.iter().all(is_kept)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::gang::{Life, UNTIL_ATTACHED, of_waiting};
    use std::net::SocketAddr;

    const JOB: &str = "[data]\nprompts='p'\ntokenizer='t'\n[job]\nname='j'\n[trainer.command]\n\
                       argv=['python', 'train.py', '{job}']\nrestore_args=['--again']\ninherit=[]\ncwd='/'\n\
                       env={ PLACE='{rank}/{world_size}', A='{job}' }\n";

    fn member() -> Member {
        Member {
            rank: 1,
            world_size: 2,
            local_rank: 1,
            local_world_size: 2,
            group_rank: 0,
            group_world_size: 1,
            master: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 4000),
        }
    }

    fn life(job: &Job, generation: u64) -> Command {
        let life = Life {
            job: "j",
            generation,
            error_file: Path::new("/e"),
        };
        let of = OfTrainer {
            job,
            member: &member(),
            incarnation: 7,
            generation,
            folder: Path::new("/own"),
            advertise: Ipv4Addr::LOCALHOST.into(),
            variables: &member().as_rank(&life),
        };
        let home = Home::of(Path::new("/snapshots"), "engine-trainer-1");
        let command = job.trainer.command.as_ref().unwrap();
        Command::of_trainer(&of, command, &home).unwrap()
    }

    #[test]
    fn a_program_that_waits_knows_no_place_and_is_told_what_a_start_would_have_told_it() {
        let job = Job::parse(JOB, Path::new("job.toml")).unwrap();
        let command = job.trainer.command.as_ref().unwrap();
        assert!(command.can_wait());
        let home = Home::of(Path::new("/snapshots"), "spare-1");
        let spare = Command::of_spare(&job, command, &of_waiting("j"), &home).unwrap();
        let waits = spare.as_started();
        assert_eq!(waits.argv(), ["python", "train.py", "j", "--again"]);
        let known = |name: &str| waits.env.get(&OsString::from(name)).unwrap().to_str();
        for name in [
            "RANK",
            "MASTER_ADDR",
            "MASTER_PORT",
            "ROBUST_SOCKET",
            "PLACE",
        ] {
            assert_eq!(known(name), Some(UNTIL_ATTACHED), "{name}");
        }
        assert_eq!(known("A"), Some("j"));

        let handed = life(&job, 2).handed_to(&waits).unwrap();
        let told = |name: &str| handed.env.iter().find(|(of, _)| of == name).cloned();
        let value = |name: &str| told(name).map(|(_, value)| value);
        assert_eq!(value("RANK").as_deref(), Some("1"));
        assert_eq!(value("PLACE").as_deref(), Some("1/2"));
        assert_eq!(value("MASTER_PORT").as_deref(), Some("4000"));
        assert_eq!(value("TORCHELASTIC_ERROR_FILE").as_deref(), Some("/e"));
        assert_eq!(value("A"), None, "it has that");
        // The first gang is started without what later ones get.
        let other = life(&job, 1).handed_to(&waits).unwrap_err();
        assert!(other.contains("another command line"), "{other}");
    }

    #[test]
    fn a_program_that_does_not_see_what_the_rank_would_is_not_made_that_rank() {
        let hidden = |kept: &[&str]| Hidden {
            covered: vec!["/state".into()],
            kept: kept.iter().map(PathBuf::from).collect(),
            user: None,
        };
        let has = hidden(&["/state/own/trainer-0", "/snapshots"]);
        let fits = hidden(&["/snapshots/engine-trainer-0", "/state/own/trainer-0"]);
        assert!(sees_as_much(Some(&has), Some(&fits)) && sees_as_much(None, None));
        let other = hidden(&["/state/own/trainer-1"]);
        assert!(!sees_as_much(Some(&has), Some(&other)));
        assert!(!sees_as_much(None, Some(&fits)) && !sees_as_much(Some(&has), None));
    }
}
