//! The command line: our own switches, those of the real engines that matter here, and all others
//! dropped.

use crate::protocol::Dialect;
use crate::quirks::{self, QuirkError, Quirks};
use clap::{CommandFactory, Parser};
use std::path::PathBuf;

/// Answers as vLLM or SGLang does, with their process trees and their faults.
///
/// Takes the real engine's command line with only the program's name changed: `-m
/// sglang.launch_server ..`, `-m vllm.entrypoints.openai.api_server ..` and `serve MODEL ..` say
/// the dialect, and options of theirs that mean nothing here are accepted.
#[derive(Debug, Clone, Parser)]
#[command(name = "fake-engine", version = None, args_override_self = true)]
pub struct Args {
    /// The engine that is played; else what -m names
    #[arg(long, value_enum)]
    pub dialect: Option<Dialect>,
    /// The module that python would run
    #[arg(short = 'm', long, hide = true)]
    pub module: Option<String>,
    /// The model's folder: config.json, tokenizer.json, model.safetensors (each may be missing)
    #[arg(long, visible_alias = "model")]
    pub model_path: Option<PathBuf>,
    /// The address to listen at
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// The port to listen at; 0: a free one, which is printed
    #[arg(long)]
    pub port: Option<u16>,
    /// A Unix socket to listen at instead (vllm)
    #[arg(long)]
    pub uds: Option<PathBuf>,
    /// The name that clients know the model by; else its path
    #[arg(long)]
    pub served_model_name: Option<String>,
    /// The key that clients must send as bearer
    #[arg(long)]
    pub api_key: Option<String>,
    /// Tokens of prompt and reply together
    #[arg(long, visible_alias = "max-model-len")]
    pub context_length: Option<usize>,
    /// Requests that get tokens at the same time
    #[arg(long, visible_alias = "max-num-seqs", default_value_t = 256)]
    pub max_running_requests: usize,
    /// Chunks have what is new, not all so far (sglang)
    #[arg(long)]
    pub incremental_streaming_output: bool,
    /// Replies have no text (sglang)
    #[arg(long)]
    pub skip_tokenizer_init: bool,
    /// /inference/v1/generate is there (vllm)
    #[arg(long, visible_alias = "tokens-only")]
    pub enable_scale_out: bool,
    /// The backend of weight transfer, as JSON (vllm): {"backend": "robustrl"} is played
    #[arg(long)]
    pub weight_transfer_config: Option<String>,
    /// The loader of weights that others send (sglang): robustrl.sglang.load is played
    #[arg(long)]
    pub custom_weight_loader: Option<String>,
    /// /metrics is there (sglang)
    #[arg(long)]
    pub enable_metrics: bool,
    /// /sleep gives memory back (vllm)
    #[arg(long)]
    pub enable_sleep_mode: bool,
    /// /release_memory_occupation gives memory back (sglang)
    #[arg(long)]
    pub enable_memory_saver: bool,
    /// Weights that are given back are copied to the host before (sglang)
    #[arg(long)]
    pub enable_weights_cpu_backup: bool,
    /// Tokens that a request gets in a second
    #[arg(long, default_value_t = 200.0)]
    pub tokens_per_s: f64,
    /// What the real engine's times (until a leader ends, between polls) are multiplied with
    #[arg(long, default_value_t = 1.0)]
    pub time_scale: f64,
    /// A fault, NAME or NAME=ARG; may be repeated
    #[arg(long)]
    pub quirk: Vec<String>,
}

/// A command line that cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum ArgsError {
    /// As clap says it.
    #[error("{0}")]
    Parse(#[from] clap::Error),
    /// Neither the dialect nor a module that tells it.
    #[error("--dialect is missing: sglang or vllm")]
    NoDialect,
    /// A quirk that is none.
    #[error(transparent)]
    Quirk(#[from] QuirkError),
    /// A speed or a scale that is no positive number.
    #[error("{0} must be a number above 0")]
    NotPositive(&'static str),
}

impl Args {
    /// Reads a command line as a real engine's or ours.
    pub fn read(argv: impl IntoIterator<Item = String>) -> Result<Self, ArgsError> {
        let mut args = Self::try_parse_from(known(argv))?;
        args.dialect = args.dialect.or_else(|| match args.module.as_deref()? {
            module if module.starts_with("sglang") => Some(Dialect::Sglang),
            module if module.starts_with("vllm") => Some(Dialect::Vllm),
            _ => None,
        });
        if args.tokens_per_s.is_nan() || args.tokens_per_s <= 0.0 {
            return Err(ArgsError::NotPositive("--tokens-per-s"));
        }
        if args.time_scale.is_nan() || args.time_scale <= 0.0 {
            return Err(ArgsError::NotPositive("--time-scale"));
        }
        Ok(args)
    }

    /// The engine that is played.
    pub fn dialect(&self) -> Result<Dialect, ArgsError> {
        self.dialect.ok_or(ArgsError::NoDialect)
    }

    /// The faults of the command line and of the environment.
    pub fn quirks(&self) -> Result<Quirks, ArgsError> {
        let env = std::env::var(quirks::ENV).unwrap_or_default();
        let all = self.quirk.iter().map(String::as_str).chain(env.split(','));
        Ok(Quirks::parse(all)?)
    }
}

/// The arguments that mean something here; an unknown option goes with its value.
fn known(argv: impl IntoIterator<Item = String>) -> Vec<String> {
    let command = Args::command();
    let takes_value = |name: &str| {
        let mut all = command.get_arguments();
        let found = all.find(|a| {
            a.get_long_and_visible_aliases()
                .is_some_and(|l| l.contains(&name))
        });
        found.map(|a| a.get_action().takes_values())
    };
    let mut argv = argv.into_iter().peekable();
    let mut kept: Vec<String> = argv.next().into_iter().collect();
    while let Some(arg) = argv.next() {
        let plain = |next: &String| !next.starts_with('-');
        let name = arg
            .strip_prefix("--")
            .map(|n| n.split('=').next().unwrap_or(n));
        match (arg.as_str(), name) {
            ("-m", _) => kept.extend(std::iter::once(arg).chain(argv.next())),
            ("-h" | "--help", _) => kept.push("--help".to_owned()),
            ("serve", _) => {
                kept.push("--module=vllm".to_owned());
                kept.extend(
                    argv.next_if(plain)
                        .map(|model| format!("--model-path={model}")),
                );
            }
            (_, Some(name)) => match takes_value(name) {
                Some(true) if !arg.contains('=') => {
                    kept.extend(std::iter::once(arg).chain(argv.next()))
                }
                Some(_) => kept.push(arg),
                None if arg.contains('=') => {}
                None => drop(argv.next_if(plain)),
            },
            _ => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(line: &str) -> Result<Args, ArgsError> {
        Args::read(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn the_real_engines_command_lines_are_taken_with_another_program() {
        let args = read(
            "fake-engine -m sglang.launch_server --model-path /m --device cpu --host 127.0.0.1 \
             --port 31 --disable-cuda-graph --incremental-streaming-output --context-length 128 \
             --random-seed=7",
        )
        .unwrap();
        assert_eq!(args.dialect().unwrap(), Dialect::Sglang);
        assert_eq!((args.port, args.context_length), (Some(31), Some(128)));
        assert!(args.incremental_streaming_output);
        let args = read(
            "fake-engine serve /m --dtype float32 --uds /tmp/s --max-model-len 64 --enforce-eager",
        )
        .unwrap();
        assert_eq!(args.dialect().unwrap(), Dialect::Vllm);
        assert_eq!(args.model_path, Some("/m".into()));
        assert_eq!(
            (args.uds, args.context_length),
            (Some("/tmp/s".into()), Some(64))
        );
    }

    #[test]
    fn a_command_line_without_a_dialect_is_refused() {
        let error = read("fake-engine --port 0")
            .unwrap()
            .dialect()
            .unwrap_err()
            .to_string();
        assert_eq!(error, "--dialect is missing: sglang or vllm");
    }

    #[test]
    fn speeds_and_scales_are_above_zero() {
        assert!(read("fake-engine --tokens-per-s 0").is_err());
        assert!(read("fake-engine --time-scale nan").is_err());
    }
}
