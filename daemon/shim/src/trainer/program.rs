//! The program of a rank: with what it is started, or told where it waited for that, and when it counts as up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use robust_proto::v1::Peer;
use robust_proto::{ROUTER_KEY_VARIABLE, ROUTER_VARIABLE};
use robust_shared::ids::{InstanceId, Role};
use robust_shared::job::{Kept, Launcher, Level};
use robust_shared::phase::Phase;
use robust_tree::Policy;

use super::Shim;
use super::comes_up::ComesUp;
use super::rank::Rank;
use super::words::Attached;
use crate::error::ShimError;
use crate::gang::{Life, Member, Variables};
use crate::hosted::Hosted;
use crate::process::{self, Command, OfTrainer, own_folder};
use crate::sight::Sight;

impl Shim {
    /// The gang is known: the program is started as one of it.
    pub(super) fn start_program(&mut self, peers: &[Peer]) -> Result<(), ShimError> {
        let Some(work) = self.work.take() else {
            return Ok(());
        };
        let own = self.args.job.own_loop();
        let member = Member::of(self.args.index, peers).ok_or_else(|| {
            let ranks = peers.len();
            ShimError::NeverUp(format!("the gang of {ranks} ranks has no port to meet at"))
        })?;
        let work = work.among(member.world_size);
        let member = match process::devices() {
            Some(_) => member.alone_on_its_devices(),
            None => member,
        };
        let variables = self.variables(&member);
        let (role, index) = (Role::Trainer, self.args.index);
        let folder = own_folder(&self.args.host_socket, InstanceId { role, index })?;
        let of = OfTrainer {
            job: &self.args.job,
            folder: &folder,
            member: &member,
            incarnation: self.args.incarnation,
            generation: self.args.generation,
            advertise: self.args.bind,
            variables: &variables,
        };
        let sight = Sight::of(&self.args, &self.home, &folder).of_rank();
        let command = Command::of_trainer(&of, &self.command, &self.home)?.with(&sight)?;
        // What an earlier life wrote is no explanation of this one's end.
        let _ = std::fs::remove_file(self.error_file());
        let (policy, deaths) = (Policy::of_program(), self.deaths.clone());
        if self.command.level == Level::None {
            self.comes_up = Some(ComesUp::begin(&self.command)?);
        }
        let waiting = self.waiting.take();
        let went_on = waiting.and_then(|of| of.become_rank(&command, &self.home, deaths.clone()));
        let hosted = match went_on {
            Some(hosted) => hosted,
            None => Hosted::start(command, &self.home, policy, deaths)?.0,
        };
        let _ = self.running.set(Arc::clone(&hosted.tree));
        self.hosted = Some(hosted);
        self.started = Some(Instant::now());
        let attached = Attached {
            rank: member.rank,
            world_size: member.world_size,
            local_rank: member.local_rank,
            generation: self.args.generation,
            incarnation: self.args.incarnation,
            job: self.args.job.job.name.clone(),
            model: self.args.job.model.path.clone().unwrap_or_default(),
            page: self.page_path.clone(),
            canary: self.canary.clone(),
            level: self.command.level,
            keeps_state: own.is_none_or(|own| own.keeps_state),
            phases: self.command.phases.clone(),
            reshards: self.command.snapshot == Kept::Dcp,
        };
        self.rank = Some(Rank::new(attached, own, work));
        self.look_whether_up();
        Ok(())
    }

    /// A program that says nothing may be up by now.
    pub(super) fn look_whether_up(&mut self) {
        if !self.comes_up.as_mut().is_some_and(ComesUp::is_up) {
            return;
        }
        self.comes_up = None;
        if let (Some(rank), Some(hosted)) = (&mut self.rank, &mut self.hosted) {
            rank.on_up();
            hosted.ready();
            self.enter(Phase::Loop, 0);
        }
    }

    pub(super) fn error_file(&self) -> PathBuf {
        self.home.run().join("error.json")
    }

    fn variables(&self, member: &Member) -> Variables {
        let (name, generation) = (&self.args.job.job.name, self.args.generation);
        let life = Life {
            job: name,
            generation,
            error_file: &self.error_file(),
        };
        let mut variables = match self.command.launcher {
            Launcher::Rank => member.as_rank(&life),
            Launcher::Node | Launcher::Job => member.as_launcher(&life, self.command.slots),
        };
        // A program that says nothing finds nobody to say it to.
        let heard = (self.command.level > Level::None)
            .then(|| ("ROBUST_SOCKET", self.home.socket().display().to_string()));
        let own = [
            // As torchrun has it: ranks that share a host would spin against each other.
            ("OMP_NUM_THREADS", "1".to_owned()),
            // Its log is read while it runs.
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("ROBUST_SHM", self.home.run().display().to_string()),
            ("ROBUST_INDEX", member.rank.to_string()),
            ("ROBUST_INCARNATION", self.args.incarnation.to_string()),
            ("ROBUST_GENERATION", generation.to_string()),
        ];
        let router = [ROUTER_VARIABLE, ROUTER_KEY_VARIABLE];
        let router = router.map(|name| Some((name, std::env::var(name).ok()?)));
        let own = own
            .into_iter()
            .chain(heard)
            .chain(router.into_iter().flatten());
        variables.extend(own.map(|(key, text)| (key.into(), text.into())));
        variables
    }
}
