//! What a job file's values must be.
use super::error::Problem;
use super::placement::count_key;
use super::sections::{CONTROLLERS, wrong_address};
use super::{
    Dtype, Job, Mode, ModelConfig, PublishAfter, Verification, WeightTransport, WrittenBy,
};
use crate::core::{FaultKind, LONGEST_S, RuleSet};
use crate::ids::Role;
use std::collections::BTreeSet;

/// Groups and members of a trajectory's key have 16 bits each.
pub(super) const GROUP_LIMIT: u64 = 65_536;
/// Most trajectories of one batch: each has a place in the controller's memory from its beginning on.
pub const BATCH_LIMIT: u64 = 1 << 22;
/// Most instances of one role; far above what one leader can drive, far below what overflows.
pub(super) const INSTANCE_LIMIT: u64 = 10_000;
/// Most places of one pool on one node: the controller looks at each when it asks where there is room.
pub const POOL_LIMIT: u32 = 65_536;

/// Whether a text names an object store.
fn check_place(key: &'static str, url: &str) -> Result<(), Problem> {
    let known = [
        "s3://", "s3a://", "gs://", "az://", "abfs://", "abfss://", "file:///",
    ];
    match known
        .iter()
        .any(|k| url.len() > k.len() && url.starts_with(k))
    {
        true => Ok(()),
        false => {
            let must = "write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER";
            Err(bad(key, format!("{url:?}"), must))
        }
    }
}

impl Job {
    /// Refuses what cannot run: values out of range, shapes that do not divide, impossible
    /// placement. The first problem found is returned.
    pub fn validate(&self) -> Result<(), Problem> {
        self.validate_values()?;
        for role in Role::ALL.into_iter().filter(|r| *r != Role::Hybrid) {
            self.check_bounds(role)?;
        }
        self.check_fixed_ports()?;
        self.placement().map(|_| ())
    }

    /// The same for a job that runs: where there is room, and how many may be asked for, was looked at
    /// when it began and is the core's to know since.
    pub fn validate_values(&self) -> Result<(), Problem> {
        self.check_name()?;
        self.check_pass_env()?;
        self.check_data()?;
        self.check_counts()?;
        self.check_remote()?;
        self.check_ha()?;
        self.check_alarms()?;
        self.check_mode()?;
        self.check_numbers()?;
        self.check_windows()?;
        self.check_budgets()?;
        self.check_context()?;
        self.check_model()?;
        self.check_batch()?;
        self.check_nodes()?;
        self.check_transport()?;
        self.check_devices()?;
        self.check_limits()?;
        self.check_commands()
    }

    fn check_name(&self) -> Result<(), Problem> {
        let name = &self.job.name;
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            let must = "use 1 to 64 letters, digits, `.`, `_` or `-`";
            return Err(bad("job.name", format!("{name:?}"), must));
        }
        Ok(())
    }

    fn check_remote(&self) -> Result<(), Problem> {
        let places = [
            (
                ("checkpoint.remote", &self.checkpoint.remote),
                (
                    "checkpoint.remote_signing_key_file",
                    &self.checkpoint.remote_signing_key_file,
                ),
                "name the object store that is signed for as `checkpoint.remote`",
            ),
            (
                ("store.remote_log", &self.store.remote_log),
                ("store.secret_file", &self.store.secret_file),
                "name the log that it seals secrets in as `store.remote_log`",
            ),
        ];
        for ((key, url), (key_of_file, file), must) in places {
            match (url, file) {
                (Some(url), _) => check_place(key, url)?,
                (None, Some(file)) => return Err(bad(key_of_file, file.display(), must)),
                (None, None) => {}
            }
        }
        self.check_written_by()
    }

    fn check_written_by(&self) -> Result<(), Problem> {
        let kept = &self.checkpoint;
        if kept.written_by == WrittenBy::Leader {
            return Ok(());
        }
        let (key, by) = ("checkpoint.written_by", kept.written_by.name());
        if kept.remote.is_none() {
            let must =
                "name the object store that nodes put checkpoints into as `checkpoint.remote`";
            return Err(bad(key, by, must));
        }
        if kept.publish_after == PublishAfter::Disk {
            let must = "with `checkpoint.publish_after = \"disk\"` every step waits for the leader's disk, \
                        which such checkpoints are not on: set that to \"replica\", or leave this out";
            return Err(bad(key, by, must));
        }
        Ok(())
    }

    fn check_ha(&self) -> Result<(), Problem> {
        let Some(ha) = &self.ha else {
            return Ok(());
        };
        let is_url = |url: &String| {
            let host = url
                .strip_prefix("https://")
                .or_else(|| url.strip_prefix("http://"));
            host.is_some_and(|host| !host.is_empty())
        };
        if ha.etcd.is_empty() || !ha.etcd.iter().all(is_url) {
            let must = "list etcd's members, each as https://HOST:PORT";
            return Err(bad("ha.etcd", format!("{:?}", ha.etcd), must));
        }
        let tls = [
            ("ha.etcd_certificate", &ha.etcd_certificate),
            ("ha.etcd_key", &ha.etcd_key),
            ("ha.etcd_authority", &ha.etcd_authority),
        ];
        let is_certified = tls.iter().any(|(_, file)| file.is_some());
        if let Some((key, _)) = tls.iter().find(|(_, file)| file.is_none())
            && (is_certified || ha.etcd.iter().any(|url| url.starts_with("https://")))
        {
            let must = "both sides of https:// show certificates: set etcd_certificate, etcd_key and etcd_authority";
            return Err(bad(key, "absent", must));
        }
        number("ha.lease_s", ha.lease_s, 1.0, 60.0)?;
        number("ha.silence_s", ha.silence_s, 0.3, 60.0)?;
        for (key, is_there) in [
            ("store.remote_log", self.store.remote_log.is_some()),
            ("store.secret_file", self.store.secret_file.is_some()),
        ] {
            if !is_there {
                let must = "controllers of [ha] go on from one log, with one secret: set both `store.remote_log` and `store.secret_file`";
                return Err(bad(key, "absent", must));
            }
        }
        if self.nodes.is_empty() {
            let must =
                "with [ha] no role runs on a controller: list the machines that join as [[node]]";
            return Err(bad("ha", "set, and there is no [[node]]", must));
        }
        if let Some(service) = self.services.keys().next() {
            let must = "services run on the leader's machine, and with [ha] that changes: run it elsewhere";
            return Err(bad(
                &format!("service.{service}"),
                "set together with [ha]",
                must,
            ));
        }
        if self.nodes.iter().any(|node| node.name == CONTROLLERS) {
            let must =
                "with [ha] that name is the leader's, whichever it is; give the node another";
            return Err(bad(
                "ha",
                format!("set, and a [[node]] is called {CONTROLLERS:?}"),
                must,
            ));
        }
        Ok(())
    }

    fn check_alarms(&self) -> Result<(), Problem> {
        let (key, alarms) = ("alarms.webhook", &self.alarms);
        match (&alarms.webhook, &alarms.webhook_secret_file) {
            (Some(url), _) => match wrong_address(url) {
                // It is not said what it is: who has the address of some receivers may post to them.
                Some(must) => Err(bad(key, "no address to post to", must)),
                None => Ok(()),
            },
            (None, Some(file)) => {
                let must = "name the receiver that knows the secret as `alarms.webhook`";
                Err(bad("alarms.webhook_secret_file", file.display(), must))
            }
            (None, None) => Ok(()),
        }
    }

    fn check_mode(&self) -> Result<(), Problem> {
        let at = self.job.switch_at;
        if !(at > 0.0 && at <= 1.0) {
            let must = "it must be above 0 and at most 1, the share of a batch's finished prompts";
            return Err(bad("job.switch_at", at, must));
        }
        if self.job.mode == Mode::Async && self.hybrid() {
            let must = "in mode async the ranks train all the time, so nothing can share their \
                        slots; leave it out, or set `job.mode` to \"semi-sync\" or \"sync\"";
            return Err(bad("trainer.hybrid", true, must));
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), Problem> {
        for role in Role::ALL.into_iter().filter(|r| *r != Role::Hybrid) {
            let least = u64::from(!self.may_be_without(role));
            whole(
                count_key(role),
                self.count(role).into(),
                least,
                INSTANCE_LIMIT,
            )?;
        }
        let (r, a, w) = (&self.rollout, &self.agent, &self.weights);
        if let Some(steps) = self.job.steps {
            whole("job.steps", steps, 1, u32::MAX.into())?;
        }
        whole("job.seed", self.job.seed, 0, i64::MAX as u64)?;
        whole("batch.prompts", self.batch.prompts.into(), 1, GROUP_LIMIT)?;
        whole(
            "batch.responses",
            self.batch.responses.into(),
            2,
            GROUP_LIMIT,
        )?;
        let trajectories = u64::from(self.batch.prompts) * u64::from(self.batch.responses);
        if trajectories > BATCH_LIMIT {
            let must = format!(
                "a batch has at most {BATCH_LIMIT} trajectories (`batch.prompts` x `batch.responses`)"
            );
            return Err(bad("batch.responses", self.batch.responses, must));
        }
        whole(
            "train.micro_batch",
            self.train.micro_batch.into(),
            1,
            GROUP_LIMIT,
        )?;
        whole("rollout.max_running", r.max_running.into(), 1, GROUP_LIMIT)?;
        whole(
            "rollout.max_new_tokens",
            r.max_new_tokens.into(),
            1,
            1 << 20,
        )?;
        whole("agent.concurrency", a.concurrency.into(), 1, GROUP_LIMIT)?;
        whole("agent.max_turns", a.max_turns.into(), 1, 1000)?;
        whole("agent.durable_every_ms", a.durable_every_ms, 0, 600_000)?;
        whole("agent.tool.timeout_ms", a.tool.timeout_ms, 1, 3_600_000)?;
        whole("agent.tool.memory_mb", a.tool.memory_mb, 16, 1 << 20)?;
        whole("agent.tool.retries", a.tool.retries.into(), 0, 1000)?;
        whole("agent.tool.retry_ms", a.tool.retry_ms, 0, 60_000)?;
        let kept = &self.checkpoint;
        whole("checkpoint.keep", kept.keep.into(), 1, 10_000)?;
        whole("checkpoint.keep_every", kept.keep_every, 0, 1 << 40)?;
        whole("checkpoint.keep_best", kept.keep_best.into(), 0, 10_000)?;
        whole("checkpoint.remote_every", kept.remote_every, 1, 1 << 40)?;
        whole("weights.chunk_kib", w.chunk_kib, 4, 1 << 20)?;
        whole(
            "weights.pullers_per_source",
            w.pullers_per_source.into(),
            1,
            1024,
        )?;
        // Below, a pool has no block for each of its uses.
        whole("weights.buffer_mib", w.buffer_mib, 4, 1 << 20)?;
        whole("weights.full_every", w.full_every, 1, 1 << 40)?;
        whole(
            "detect.sample_interval_ms",
            self.detect.sample_interval_ms,
            10,
            60_000,
        )?;
        whole("detect.evidence_ms", self.detect.evidence_ms, 10, 60_000)
    }

    fn check_bounds(&self, role: Role) -> Result<(), Problem> {
        let (count, bounds) = (self.count(role), self.bounds(role));
        let (key, count_key) = (|k| format!("{role}.{k}"), count_key(role));
        if count == 0 {
            return Ok(());
        }
        whole(&key("min"), bounds.min.into(), 1, INSTANCE_LIMIT)?;
        if bounds.min > count {
            let must = format!("it must be at most `{count_key}` ({count})");
            return Err(bad(&key("min"), bounds.min, must));
        }
        if bounds.max < count {
            let must = format!("it must be at least `{count_key}` ({count})");
            return Err(bad(&key("max"), bounds.max, must));
        }
        if !(1..=count).contains(&bounds.n_init) {
            let must = format!("it must be 1 to `{count_key}` ({count})");
            return Err(bad(&key("n_init"), bounds.n_init, must));
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), Problem> {
        let t = &self.train;
        number("train.lr", t.lr, 0.0, 1.0)?;
        for beta in t.betas {
            number("train.betas", beta, 0.0, 0.999_999_9)?;
        }
        number("train.eps", t.eps, 1e-30, 1.0)?;
        number("train.weight_decay", t.weight_decay, 0.0, 1.0)?;
        number("train.max_grad_norm", t.max_grad_norm, 0.0, 1e9)?;
        number("train.clip_eps", t.clip_eps, 0.0, 0.999_999_9)?;
        number(
            "train.clip_eps_high",
            t.clip_eps_high.unwrap_or(t.clip_eps),
            0.0,
            100.0,
        )?;
        if t.dual_clip != 0.0 {
            number("train.dual_clip", t.dual_clip, 1.0, 1e6)?;
        }
        number("train.kl_coef", t.kl_coef, 0.0, 1e3)?;
        number("rollout.temperature", self.rollout.temperature, 0.0, 100.0)?;
        let beside = self.weights.beside_generation;
        number("weights.beside_generation", beside, 0.05, 1.0)
    }

    fn check_windows(&self) -> Result<(), Problem> {
        for (key, value) in [
            ("job.daemon_grace_s", self.job.daemon_grace_s),
            ("weights.stall_timeout_s", self.weights.stall_timeout_s),
        ] {
            time(key, value)?;
        }
        RuleSet::from_job(&self.detect).map(|_| ())
    }

    fn check_budgets(&self) -> Result<(), Problem> {
        let r = &self.restart;
        whole("restart.max", r.max.into(), 0, 1000)?;
        time("restart.window_s", r.window_s)?;
        whole("restart.backoff_ms", r.backoff_ms, 0, 3_600_000)?;
        whole(
            "restart.max_task_restarts",
            r.max_task_restarts.into(),
            0,
            1000,
        )?;
        whole("restart.same_cause", r.same_cause.into(), 0, 1000)?;
        // So many faults of a node are remembered.
        whole("restart.cordon_after", r.cordon_after.into(), 0, 16)?;
        time("restart.cordon_half_life_s", r.cordon_half_life_s)?;
        whole("restart.spares", r.spares.into(), 0, 8)?;
        for kind in FaultKind::ALL {
            let (own, key) = (r.own(kind), |k| format!("restart.{kind}.{k}"));
            whole(&key("max"), own.max.unwrap_or(0).into(), 0, 1000)?;
            time(&key("window_s"), own.window_s.unwrap_or(1.0))?;
            whole(
                &key("backoff_ms"),
                own.backoff_ms.unwrap_or(0),
                0,
                3_600_000,
            )?;
        }
        Ok(())
    }

    fn check_context(&self) -> Result<(), Problem> {
        let r = &self.rollout;
        if let Some(longest) = r.max_context {
            whole("rollout.max_context", longest.into(), 2, 1 << 20)?;
            if r.max_new_tokens >= longest {
                let must = format!("it must be below `rollout.max_context` ({longest})");
                return Err(bad("rollout.max_new_tokens", r.max_new_tokens, must));
            }
            let positions = self.model.config.max_position_embeddings;
            if self.model.path.is_none() && longest > positions {
                let must = format!(
                    "it must be at most `model.config.max_position_embeddings` ({positions})"
                );
                return Err(bad("rollout.max_context", longest, must));
            }
        }
        if r.dtype != Dtype::Float32 && r.command.is_some() {
            let must = "it is the built-in rollout's; say with `rollout.command.dtype` what numbers your \
                        engine holds";
            return Err(bad("rollout.dtype", "\"bfloat16\"", must));
        }
        let of_other_numbers = r.command.as_ref().filter(|c| c.dtype != self.wire());
        if of_other_numbers.is_some_and(|c| {
            c.dtype == Dtype::Float32 && c.verify.contains(&Verification::Checksum)
        }) {
            let must = "an engine of float32 has other bytes then than were published; leave it out, or \
                        `checksum` out of `rollout.command.verify`";
            return Err(bad("weights.dtype", "\"bfloat16\"", must));
        }
        Ok(())
    }

    fn check_model(&self) -> Result<(), Problem> {
        if self.model.path.is_some() {
            return Ok(());
        }
        let w = &self.model.warmup;
        whole("model.warmup.steps", w.steps, 0, u32::MAX.into())?;
        whole("model.warmup.batch", w.batch.into(), 1, GROUP_LIMIT)?;
        number("model.warmup.lr", w.lr, 0.0, 1.0)?;
        whole("model.warmup.seed", w.seed, 0, i64::MAX as u64)?;
        number("model.warmup.copying_first", w.copying_first, 0.0, 1.0)?;
        number("model.warmup.tool_share", w.tool_share, 0.0, 1.0)?;
        number("model.warmup.call_mistakes", w.call_mistakes, 0.0, 1.0)?;
        number("model.warmup.copy_mistakes", w.copy_mistakes, 0.0, 1.0)?;
        self.model.config.check()?;
        let longest = self.model.config.max_position_embeddings;
        if self.rollout.max_new_tokens >= longest {
            let must =
                format!("it must be below `model.config.max_position_embeddings` ({longest})");
            return Err(bad(
                "rollout.max_new_tokens",
                self.rollout.max_new_tokens,
                must,
            ));
        }
        Ok(())
    }

    fn check_batch(&self) -> Result<(), Problem> {
        if self.own_loop().is_some() {
            return Ok(());
        }
        let (samples, ranks) = (self.samples_per_step(), u64::from(self.trainer.ranks));
        if samples % ranks != 0 {
            let must = format!(
                "it must divide the samples of a step: `batch.prompts` x `batch.responses` = {samples}"
            );
            return Err(bad("trainer.ranks", ranks, must));
        }
        Ok(())
    }

    /// Roles of several machines share no memory.
    fn check_transport(&self) -> Result<(), Problem> {
        if self.weights.transport == WeightTransport::Shm && self.nodes.len() > 1 {
            let is = format!("\"shm\" with {} nodes", self.nodes.len());
            let must = "use \"auto\": shared memory on a node, the network between nodes";
            return Err(bad("weights.transport", is, must));
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), Problem> {
        let mut names = BTreeSet::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let key = format!("node.{at}.name");
            if node.name.is_empty() {
                return Err(bad(&key, "empty", "give every node a name"));
            }
            if !names.insert(&node.name) {
                let must = "another node has that name; give every node its own";
                return Err(bad(&key, format!("{:?}", node.name), must));
            }
            for (pool, slots) in &node.pools {
                let most = u64::from(POOL_LIMIT) * u64::from(self.place_slots(pool));
                whole(&format!("node.{at}.pools.{pool}"), (*slots).into(), 0, most)?;
            }
        }
        Ok(())
    }
}

impl ModelConfig {
    fn check(&self) -> Result<(), Problem> {
        for (key, value) in [
            ("model.config.hidden_size", self.hidden_size),
            ("model.config.num_hidden_layers", self.num_hidden_layers),
            ("model.config.num_attention_heads", self.num_attention_heads),
            ("model.config.num_key_value_heads", self.num_key_value_heads),
            ("model.config.head_dim", self.head_dim),
            ("model.config.intermediate_size", self.intermediate_size),
            (
                "model.config.max_position_embeddings",
                self.max_position_embeddings,
            ),
        ] {
            whole(key, value.into(), 1, 1 << 20)?;
        }
        number("model.config.rope_theta", self.rope_theta, 1.0, 1e12)?;
        number("model.config.rms_norm_eps", self.rms_norm_eps, 1e-30, 1.0)?;
        if !self
            .num_attention_heads
            .is_multiple_of(self.num_key_value_heads)
        {
            let heads = self.num_attention_heads;
            let must = format!("it must divide `model.config.num_attention_heads` ({heads})");
            return Err(bad(
                "model.config.num_key_value_heads",
                self.num_key_value_heads,
                must,
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(bad(
                "model.config.head_dim",
                self.head_dim,
                "it must be even",
            ));
        }
        Ok(())
    }
}

pub(super) fn bad(key: &str, value: impl ToString, must: impl Into<String>) -> Problem {
    Problem::BadValue {
        key: key.to_owned(),
        value: value.to_string(),
        must: must.into(),
    }
}

pub(super) fn whole(key: &str, value: u64, least: u64, most: u64) -> Result<(), Problem> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(bad(key, value, format!("it must be {least} to {most}")))
}

/// Not a number is in no range.
pub(super) fn number(key: &str, value: f64, least: f64, most: f64) -> Result<(), Problem> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(bad(key, value, format!("it must be {least} to {most}")))
}

pub(super) fn time(key: &str, value: f64) -> Result<(), Problem> {
    if value > 0.0 && value <= LONGEST_S {
        return Ok(());
    }
    let must = "it must be above 0 and at most 30 days, in seconds";
    Err(bad(key, value, must))
}
