//! What the commands of a job file must be.
use super::super::error::{Problem, list, suggest};
use super::super::validate::{GROUP_LIMIT, INSTANCE_LIMIT, bad, number, time, whole};
use super::super::{
    EngineKind, EngineWeights, Flush, Isolate, Job, PauseMode, ProbeBy, RolloutCommand, Service,
    Stop,
};
use super::placeholder::{Placeholder, Scope, is_variable};
use super::plugin::check_plugin;
use super::template::Template;
use crate::core::RuleSet;
use crate::ids::Role;
use std::collections::{BTreeMap, BTreeSet};

/// More ports than any engine opens.
const MOST_PORTS: u64 = 64;
/// More slots than any machine has.
pub(super) const MOST_SLOTS: u64 = 1024;
/// Names that commands of `robustctl` and keys of the job file have taken.
const RESERVED: [&str; 7] = [
    "trainer", "hybrid", "rollout", "agent", "task", "all", "leader",
];

/// The part of a command that is the same for all.
pub(super) struct Program<'a> {
    /// The dotted key of its table.
    pub at: String,
    pub scope: Scope,
    pub argv: &'a [String],
    pub env: &'a BTreeMap<String, String>,
    pub inherit: &'a [String],
    pub ports: u32,
    pub user: Option<&'a str>,
}

impl Job {
    /// Refuses commands that cannot run, whatever the machine.
    pub(in crate::job) fn check_commands(&self) -> Result<(), Problem> {
        if let Some(command) = &self.rollout.command {
            self.check_rollout_command(command)?;
        }
        if let Some(command) = &self.trainer.command {
            self.check_trainer_command(command)?;
        }
        if let Some(command) = &self.agent.command {
            self.check_agent_command(command)?;
        }
        for (name, service) in &self.services {
            self.check_service(name, service)?;
        }
        self.check_order()
    }

    fn check_rollout_command(&self, c: &RolloutCommand) -> Result<(), Problem> {
        const AT: &str = "rollout.command";
        let key = |k: &str| format!("{AT}.{k}");
        let templates = self.check_program(&Program {
            at: AT.to_owned(),
            scope: Scope::Rollout,
            argv: &c.argv,
            env: &c.env,
            inherit: &c.inherit,
            ports: c.ports,
            user: c.user.as_deref(),
        })?;
        whole(&key("slots"), c.slots.into(), 1, MOST_SLOTS)?;
        whole(&key("requests"), c.requests.into(), 1, GROUP_LIMIT)?;
        whole(&key("poison"), c.poison.into(), 0, 1000)?;
        time(&key("ready.timeout_s"), c.ready.timeout_s)?;
        route(&key("ready.path"), c.ready.path.as_deref())?;
        time(&key("load_s"), c.load_s)?;
        check_stop(AT, &c.stop)?;
        number(&key("canary.tolerance"), c.tolerance(), 1e-6, 100.0)?;
        check_pause(c)?;
        check_verify(c)?;
        self.check_health(c)?;
        check_listening(c, &templates)?;
        check_plugin(c)?;
        if c.flush == Flush::Salt {
            let must =
                "salting requests by version is not built yet; write \"always\" or \"never\"";
            return Err(bad(&key("flush"), "\"salt\"", must));
        }
        if c.slots > 1 && self.hybrid() {
            let must = "it must be 1 with hybrid engines, which have their rank's one slot; or set \
                        `trainer.hybrid = false`";
            return Err(bad(&key("slots"), c.slots, must));
        }
        self.check_hybrid(c)
    }

    /// Where the rule has its settings too, one place must say them.
    fn check_health(&self, c: &RolloutCommand) -> Result<(), Problem> {
        let mut rules = RuleSet::default();
        let table = self.detect.rules.get("health_probe");
        for (values, said, key) in rules.health_probe.said_by(&c.health) {
            let (s, Some(value)) = (values.setting, said) else {
                continue;
            };
            match s.whole {
                true => number(key, value, s.least, s.most)?,
                false => time(key, value)?,
            }
            if table.is_some_and(|table| table.has(s.key)) {
                let must = format!(
                    "`detect.health_probe.{}` says it too; keep one of them",
                    s.key
                );
                return Err(bad(key, value, must));
            }
        }
        const PATH: &str = "rollout.command.health.path";
        route(PATH, c.health.path.as_deref())?;
        match (c.health.by, &c.health.path) {
            (ProbeBy::Path, None) => Err(Problem::MissingKey {
                key: PATH.to_owned(),
            }),
            (ProbeBy::Generate, Some(path)) => {
                let must = "it is asked only with `by = \"path\"`; write that, or remove it";
                Err(bad(PATH, format!("{path:?}"), must))
            }
            _ => Ok(()),
        }
    }

    fn check_service(&self, name: &str, s: &Service) -> Result<(), Problem> {
        let at = format!("service.{name}");
        let key = |k: &str| format!("{at}.{k}");
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            let must = "name it with 1 to 64 letters, digits, `_` or `-`";
            return Err(bad("service", format!("{name:?}"), must));
        }
        if RESERVED.contains(&name) {
            let must = "that name means something else; give the service another";
            return Err(bad(&at, format!("{name:?}"), must));
        }
        self.check_program(&Program {
            at: at.clone(),
            scope: Scope::Service,
            argv: &s.argv,
            env: &s.env,
            inherit: &s.inherit,
            ports: s.ports,
            user: s.user.as_deref(),
        })?;
        whole(&key("replicas"), s.replicas.into(), 1, INSTANCE_LIMIT)?;
        whole(&key("slots"), s.slots.into(), 1, MOST_SLOTS)?;
        if s.slots > 1 && s.pool.is_none() {
            let must = "name the pool they are of with `pool`";
            return Err(bad(&key("slots"), s.slots, must));
        }
        time(&key("ready.timeout_s"), s.ready.timeout_s)?;
        route(&key("ready.path"), s.ready.path.as_deref())?;
        check_stop(&at, &s.stop)?;
        if let Some(health) = &s.health {
            time(&key("health.every_s"), health.every_s)?;
            time(&key("health.timeout_s"), health.timeout_s)?;
            whole(&key("health.threshold"), health.threshold.into(), 1, 1000)?;
            route(&key("health.path"), Some(&health.path))?;
        }
        let asks = s.ready.path.is_some() || s.health.is_some();
        match asks && s.ports == 0 {
            true => {
                let must = "it must have a port to be asked at; set it to 1 or more";
                Err(bad(&key("ports"), s.ports, must))
            }
            false => Ok(()),
        }
    }

    /// The placeholders of all its texts.
    pub(super) fn check_program(&self, p: &Program<'_>) -> Result<Vec<Template>, Problem> {
        let key = |k: &str| format!("{}.{k}", p.at);
        whole(&key("ports"), p.ports.into(), 0, MOST_PORTS)?;
        check_user(&key("user"), p.user)?;
        let Some(program) = p.argv.first().filter(|program| !program.is_empty()) else {
            let must = "write the program and its arguments as a list of texts";
            return Err(bad(&key("argv"), "empty", must));
        };
        if p.argv.len() == 1 && program.contains(' ') {
            let parts: Vec<&str> = program.split_whitespace().take(2).collect();
            let must = format!(
                "no shell reads it; write each argument as a text of its own: {parts:?} and so on"
            );
            return Err(bad(&key("argv"), format!("[{program:?}]"), must));
        }
        for (at, name) in p.inherit.iter().enumerate() {
            check_variable(&key(&format!("inherit.{at}")), name)?;
        }
        let mut templates = Vec::new();
        for (at, text) in p.argv.iter().enumerate() {
            templates.push(self.check_text(p, &key(&format!("argv.{at}")), text)?);
        }
        for (name, text) in p.env {
            let key = key(&format!("env.{name}"));
            check_variable(&key, name)?;
            if name.starts_with("ROBUST_") {
                let must =
                    "remove it: such names are set for every process by its place in the job";
                return Err(bad(&key, format!("{text:?}"), must));
            }
            templates.push(self.check_text(p, &key, text)?);
        }
        Ok(templates)
    }

    fn check_text(&self, p: &Program<'_>, key: &str, text: &str) -> Result<Template, Problem> {
        let refused = |found: String| Problem::Placeholder {
            key: key.to_owned(),
            found,
        };
        if text.contains('\0') {
            return Err(refused(
                "a zero byte, which no argument can hold".to_owned(),
            ));
        }
        let template = Template::parse(text).map_err(|e| refused(e.to_string()))?;
        for placeholder in template.placeholders() {
            if !placeholder.is_of(p.scope) {
                let (who, its) = (p.scope.name(), p.scope.placeholders());
                let found = format!(
                    "`{placeholder}`, which has no meaning for a {who}; those that have are {its}"
                );
                return Err(refused(found));
            }
            match placeholder {
                Placeholder::Port(n) if *n >= p.ports => {
                    let found = format!(
                        "`{placeholder}`, but `{}.ports` is {}; raise it to {} or more",
                        p.at,
                        p.ports,
                        u64::from(*n) + 1
                    );
                    return Err(refused(found));
                }
                Placeholder::Service(name) => self.check_reference(p, key, name)?,
                _ => {}
            }
        }
        Ok(template)
    }

    fn check_reference(&self, p: &Program<'_>, key: &str, name: &str) -> Result<(), Problem> {
        let refused = |why: String| Problem::Placeholder {
            key: key.to_owned(),
            found: format!("`{{service.{name}}}`, {why}"),
        };
        if p.at == format!("service.{name}") {
            let why = "which is itself; its own address is `{bind}:{port}`";
            return Err(refused(why.to_owned()));
        }
        let Some(service) = self.services.get(name) else {
            let known: Vec<&str> = self.services.keys().map(String::as_str).collect();
            let hint = match suggest(name, &known) {
                near if near.starts_with("did") => near,
                _ => format!("the services are {}", list(&known, "and")),
            };
            return Err(refused(format!("but there is no such service; {hint}")));
        };
        match service.ports {
            0 => Err(refused("but that service has no port".to_owned())),
            _ => Ok(()),
        }
    }

    /// What depends on how many replicas there may be.
    pub(in crate::job) fn check_fixed_ports(&self) -> Result<(), Problem> {
        const KEY: &str = "rollout.command.fixed";
        let Some((command, fixed)) = self
            .rollout
            .command
            .as_ref()
            .and_then(|c| Some((c, c.fixed?)))
        else {
            return Ok(());
        };
        whole(KEY, fixed.into(), 1, u16::MAX.into())?;
        let most = Some(self.bounds(Role::Rollout).max).filter(|max| *max < u32::MAX);
        let most = most.unwrap_or(0).max(self.rollout.replicas).max(1);
        match command.fixed_port(most - 1) {
            Some(_) => Ok(()),
            None => {
                let must = format!(
                    "each of {most} replicas has a port of its own from there on, and 65535 is the \
                     last; it must be at most {}",
                    u64::from(u16::MAX) + 1 - u64::from(most)
                );
                Err(bad(KEY, fixed, must))
            }
        }
    }
}

fn check_variable(key: &str, name: &str) -> Result<(), Problem> {
    match is_variable(name) {
        true => Ok(()),
        false => {
            let must = "name a variable: letters, digits and `_`, no digit first";
            Err(bad(key, format!("{name:?}"), must))
        }
    }
}

pub(super) fn check_stop(at: &str, stop: &Stop) -> Result<(), Problem> {
    number(&format!("{at}.stop.grace_s"), stop.grace_s, 0.0, 3600.0)
}

fn route(key: &str, path: Option<&str>) -> Result<(), Problem> {
    let fits = |p: &str| p.starts_with('/') && p.chars().all(|c| c.is_ascii_graphic());
    match path.filter(|p| !fits(p)) {
        None => Ok(()),
        Some(path) => {
            let must = "write a route, such as \"/health\"";
            Err(bad(key, format!("{path:?}"), must))
        }
    }
}

fn check_pause(c: &RolloutCommand) -> Result<(), Problem> {
    let modes = c.kind.pauses();
    match c.pause.filter(|mode| !modes.contains(mode)) {
        None => Ok(()),
        Some(mode) => {
            let names: Vec<&str> = modes.iter().map(|m| m.name()).collect();
            let must = format!("{} has {}", c.kind.name(), list(&names, "and"));
            Err(bad(
                "rollout.command.pause",
                format!("{:?}", mode.name()),
                must,
            ))
        }
    }?;
    let stands = c.kind == EngineKind::Sglang && c.pause_mode() == PauseMode::InPlace;
    match stands && c.flush != Flush::Never {
        false => Ok(()),
        true => {
            let must = "SGLang empties its cache only if no request stands in it; write \"retract\", \
                        or `flush = \"never\"` and have tokens from keys and values of older weights";
            Err(bad("rollout.command.pause", "\"in_place\"", must))
        }
    }
}

/// What was loaded must be looked at: a 200 proves nothing.
fn check_verify(c: &RolloutCommand) -> Result<(), Problem> {
    const KEY: &str = "rollout.command.verify";
    let once: BTreeSet<_> = c.verify.iter().collect();
    if once.len() < c.verify.len() {
        let names: Vec<&str> = c.verify.iter().map(|v| v.name()).collect();
        return Err(bad(KEY, format!("{names:?}"), "name each once"));
    }
    let loads = matches!(c.weights, EngineWeights::Disk | EngineWeights::Plugin);
    match loads && c.verify.is_empty() {
        true => {
            let must = "name at least one of `version`, `checksum` and `canary`: that an engine \
                        says it loaded weights is no proof";
            Err(bad(KEY, "empty", must))
        }
        false => Ok(()),
    }
}

/// Who a program runs as. Whether there is such a user is its machine's to know.
fn check_user(key: &str, user: Option<&str>) -> Result<(), Problem> {
    let fits =
        |name: &str| !name.is_empty() && name.len() <= 64 && !name.contains(['\0', ':', '/']);
    match user {
        Some("root" | "0") => {
            let must = "nothing can be hidden from root; name another user, or none";
            Err(bad(key, format!("{:?}", user.unwrap_or_default()), must))
        }
        Some(name) if !fits(name) => {
            let must = "write the name or number of a user";
            Err(bad(key, format!("{name:?}"), must))
        }
        _ => Ok(()),
    }
}

/// An engine must be told where the shim looks for it.
fn check_listening(c: &RolloutCommand, templates: &[Template]) -> Result<(), Problem> {
    let has = |wanted: &Placeholder| {
        let mut all = templates.iter().flat_map(Template::placeholders);
        all.any(|p| p == wanted)
    };
    let (socket, port) = (has(&Placeholder::Uds), has(&Placeholder::Port(0)));
    let isolate = |must: &str| {
        let value = format!("{:?}", c.isolate.name());
        Err(bad("rollout.command.isolate", value, must))
    };
    match (c.isolate, socket, port) {
        (Isolate::Uds, false, _) => {
            isolate("the engine must be told its socket: pass it `{uds}` (vLLM: `--uds`)")
        }
        (Isolate::Netns | Isolate::Loopback, _, false) => {
            isolate("the engine must be told its port: pass it `{port}`")
        }
        (Isolate::Auto, false, false) => {
            let must = "the engine must be told where to listen: pass it `{port}`, or `{uds}` for a \
                        Unix socket";
            Err(bad("rollout.command.argv", "without an address", must))
        }
        _ => Ok(()),
    }
}
