//! Which variables of robustd's environment the processes of roles get.
//!
//! ```text
//!  PASSED ───────────────────────────────┐
//!  [job] pass_env ───────────────────────┴──► the built-in roles, the programs beside yours
//!  `inherit`, `{env:NAME}` of a command ─────► besides, the one beside that command
//! ```
//!
//! The rest is the daemon's own: keys of the object store, headers for traces, whatever else the shell or
//! the unit had that started it. A role runs code of models and of users, and needs none of it.
use super::command::{Placeholder, Template, is_variable};
use super::error::Problem;
use super::validate::bad;
use super::{Job, Service};
use crate::ids::Role;
use std::collections::{BTreeMap, BTreeSet};

/// What every role may get, if robustd has it. `*` stands for the rest of a name.
pub const PASSED: [&str; 56] = [
    // Where and for whom it runs.
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "HOSTNAME",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_*",
    // Language and time.
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TZDIR",
    // Terminal and logs.
    "TERM",
    "NO_COLOR",
    "RUST_*",
    // Libraries.
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LIBTORCH*",
    "GLIBC_TUNABLES",
    "MALLOC_*",
    "OMP_*",
    "GOMP_*",
    "KMP_*",
    "MKL_*",
    "OPENBLAS_*",
    "PYTHON*",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    // Devices.
    "CUDA_*",
    "NVIDIA_*",
    "HIP_*",
    "ROCM_*",
    "ROCR_*",
    // Transports.
    "NCCL_*",
    "GLOO_*",
    "UCX_*",
    // Frameworks.
    "TORCH*",
    "PYTORCH_*",
    "HF_*",
    "HUGGINGFACE_*",
    "TRANSFORMERS_*",
    "VLLM_*",
    "SGLANG_*",
    // The way out.
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SSL_CERT_*",
    // Our own.
    "ROBUST_*",
];

/// Parts of the names of credentials. What has one passes only by its whole name: `HF_*` is no reason to
/// hand out `HF_TOKEN`.
const CREDENTIALS: [&str; 14] = [
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
    "KEY",
    "KEYS",
    "APIKEY",
    "AUTH",
    "HEADERS",
];

/// Which variables pass to a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Names besides [`PASSED`], some with a `*` at their end.
    named: BTreeSet<String>,
}

impl Passed {
    /// Whether a variable of this name does.
    pub fn takes(&self, name: &str) -> bool {
        let named = self.named.iter().map(String::as_str);
        PASSED
            .into_iter()
            .chain(named)
            .any(|pattern| fits(pattern, name))
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning) && !is_credential(name),
        None => pattern == name,
    }
}

fn is_credential(name: &str) -> bool {
    let mut parts = name.split('_').map(str::to_ascii_uppercase);
    parts.any(|part| CREDENTIALS.contains(&part.as_str()))
}

/// Of a command what names variables: its arguments, `env` and `inherit`.
struct Command<'a>(&'a [String], &'a BTreeMap<String, String>, &'a [String]);

impl Job {
    /// What passes to the processes of a role.
    pub fn passed_to(&self, role: Role) -> Passed {
        let rollout = self.rollout.command.as_ref();
        let rollout = rollout.map(|c| Command(&c.argv, &c.env, &c.inherit));
        let trainer = self.trainer.command.as_ref();
        let trainer = trainer.map(|c| Command(&c.argv, &c.env, &c.inherit));
        let agent = self.agent.command.as_ref();
        let agent = agent.map(|c| Command(&c.argv, &c.env, &c.inherit));
        self.passed(match role {
            Role::Trainer => trainer,
            Role::Rollout | Role::Hybrid => rollout,
            Role::Agent => agent,
        })
    }

    /// What passes to the processes of a service; without one of that name what passes to all.
    pub fn passed_to_service(&self, name: &str) -> Passed {
        let service = self.services.get(name);
        self.passed(service.map(|s: &Service| Command(&s.argv, &s.env, &s.inherit)))
    }

    /// Those of these variables that pass to no process of the job, in order.
    pub fn held_back(&self, names: impl IntoIterator<Item = String>) -> Vec<String> {
        let roles = Role::ALL.map(|role| self.passed_to(role));
        let services = self.services.keys();
        let services: Vec<_> = services.map(|name| self.passed_to_service(name)).collect();
        let passes = |name: &str| roles.iter().chain(&services).any(|p| p.takes(name));
        let held: BTreeSet<_> = names.into_iter().filter(|name| !passes(name)).collect();
        held.into_iter().collect()
    }

    fn passed(&self, command: Option<Command<'_>>) -> Passed {
        let mut named: BTreeSet<String> = self.job.pass_env.iter().cloned().collect();
        if let Some(Command(argv, env, inherit)) = command {
            named.extend(inherit.iter().cloned());
            let texts = argv.iter().chain(env.values());
            // Of a validated job they all can be read.
            let templates = texts.filter_map(|text| Template::parse(text).ok());
            named.extend(templates.flat_map(|t| variables(&t).collect::<Vec<_>>()));
        }
        Passed { named }
    }

    pub(super) fn check_pass_env(&self) -> Result<(), Problem> {
        for (at, name) in self.job.pass_env.iter().enumerate() {
            let beginning = name.strip_suffix('*').unwrap_or(name);
            if beginning.is_empty() || !is_variable(beginning) {
                let must = "name a variable (letters, digits and `_`, no digit first), or the \
                            beginning of several with a `*` after it";
                return Err(bad(
                    &format!("job.pass_env.{at}"),
                    format!("{name:?}"),
                    must,
                ));
            }
        }
        Ok(())
    }
}

fn variables(template: &Template) -> impl Iterator<Item = String> + '_ {
    template.placeholders().filter_map(|p| match p {
        Placeholder::Env(name) => Some(name.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    fn job(more: &str) -> Result<Job, String> {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{more}");
        Job::parse(&text, Path::new("job.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn what_libraries_and_devices_need_passes_and_credentials_do_not() {
        let passed = job("").unwrap().passed_to(Role::Trainer);
        for name in [
            "PATH",
            "LC_ALL",
            "LD_LIBRARY_PATH",
            "CUDA_VISIBLE_DEVICES",
            "NCCL_SOCKET_IFNAME",
            "UCX_IB_PKEY",
            "HF_HOME",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING",
            "https_proxy",
            "ROBUST_SHM",
        ] {
            assert!(passed.takes(name), "{name}");
        }
        for name in [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "AZURE_STORAGE_ACCOUNT",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "HF_TOKEN",
            "HUGGINGFACE_HUB_TOKEN",
            "VLLM_API_KEY",
            "ROBUST_JOB_TOKEN",
            "WANDB_API_KEY",
            "SSH_AUTH_SOCK",
            "PATHS",
        ] {
            assert!(!passed.takes(name), "{name}");
        }
    }

    #[test]
    fn a_command_gets_what_it_names_and_the_roles_beside_it_do_not() {
        let job = job(
            "[job]\npass_env=['MY_*', 'MY_TOKEN']\n[rollout.command]\nkind='vllm'\n\
             argv=['x','{port}','{env:ENGINE_FLAGS}']\ninherit=['PATH','WANDB_API_KEY']\n\
             env={A='{env:VLLM_API_KEY}'}\n[service.judge]\nargv=['x']\ninherit=['JUDGE_KEY']\n",
        )
        .unwrap();
        let (engine, rank) = (job.passed_to(Role::Rollout), job.passed_to(Role::Trainer));
        for name in ["ENGINE_FLAGS", "WANDB_API_KEY", "VLLM_API_KEY"] {
            assert!(engine.takes(name) && !rank.takes(name), "{name}");
        }
        assert!(rank.takes("MY_FLAG") && rank.takes("MY_TOKEN") && !rank.takes("MY_API_KEY"));
        assert!(job.passed_to_service("judge").takes("JUDGE_KEY") && !engine.takes("JUDGE_KEY"));
        let names = [
            "PATH",
            "JUDGE_KEY",
            "VLLM_API_KEY",
            "S3_KEY",
            "MY_X",
            "EDITOR",
        ];
        assert_eq!(
            job.held_back(names.map(str::to_owned)),
            ["EDITOR", "S3_KEY"]
        );
    }

    #[test]
    fn the_documents_name_all_that_passes() {
        let page = include_str!("../../../docs/reference/job-file.md");
        for name in PASSED.iter().filter(|name| !name.ends_with("_PROXY")) {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn what_names_no_variable_is_refused() {
        for (wrong, shown) in [("'*'", "*"), ("'A-B'", "A-B"), ("'A*B'", "A*B"), ("''", "")] {
            let error = job(&format!("[job]\npass_env=['A', {wrong}]\n")).unwrap_err();
            let says = format!("`job.pass_env.1` is {shown:?}; name a variable");
            assert!(error.contains(&says), "{error}");
        }
    }
}
