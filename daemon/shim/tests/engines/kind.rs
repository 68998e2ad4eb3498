//! Which engine a test has, and with which models.

use std::path::{Path, PathBuf};

use robust_shared::job::Job;
use robust_shared::weights::Canary;
use safetensors::SafeTensors;
use serde_json::Value;
use toml::{Table, Value as Toml};

use super::toy;

/// Names the folder of the real engines; without it they are played.
pub const ENGINES: &str = "ENGINES";
/// Names the program that plays them.
pub const FAKE: &str = "FAKE_ENGINE";
/// What a canary continues.
pub const PROMPT: [u32; 7] = [1, 5, 9, 3, 7, 11, 2];
/// Tokens of prompt and reply together: long enough that something can happen meanwhile.
pub const LENGTH: usize = 256;

/// How vLLM is started with our receiver, as the job file writes it.
const BACKEND: &str = "{{\"backend\": \"robustrl\"}}";
/// The same for SGLang.
const LOADER: &str = "robustrl.sglang.load";

/// Whose dialect an engine speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Vllm,
    Sglang,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Vllm => "vllm",
            Kind::Sglang => "sglang",
        }
    }
}

/// The folder of the real engines, if they are to be tested.
pub fn real() -> Option<PathBuf> {
    std::env::var_os(ENGINES).map(PathBuf::from)
}

/// Two models of the same shapes with other numbers.
pub struct Models {
    folder: PathBuf,
    /// `small`, `large`.
    size: &'static str,
}

impl Models {
    /// Those of the real engines' folder, or made here for the played one.
    pub fn below(folder: &Path, size: &'static str) -> Self {
        let folder = match real() {
            Some(engines) => engines.join("models"),
            None => {
                for seed in [1, 2] {
                    toy::write(&folder.join(format!("{size}-{seed}")), seed, None);
                }
                folder.to_owned()
            }
        };
        Self { folder, size }
    }

    /// The folder of one of them, which an engine can be started with.
    pub fn folder(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}-{number}", self.size))
    }

    /// The tensors with name, shape and bytes, in the order of their names.
    pub fn tensors(&self, number: u64) -> Vec<(String, Vec<usize>, Vec<u8>)> {
        let bytes = std::fs::read(self.folder(number).join("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let all = file.iter();
        let copied = |(name, view): (&str, safetensors::tensor::TensorView<'_>)| {
            (name.to_owned(), view.shape().to_vec(), view.data().to_vec())
        };
        let mut tensors: Vec<_> = all.map(copied).collect();
        tensors.sort();
        tensors
    }

    /// What the model answers to [`PROMPT`], by whoever knows it without an engine.
    pub fn canary(&self, number: u64) -> Canary {
        match real() {
            Some(_) => self.computed(number),
            None => self.hashed(number),
        }
    }

    /// As `transformers` computed it when the engines were set up.
    fn computed(&self, number: u64) -> Canary {
        let name = format!("canary-{}-{number}.json", self.size);
        let path = self.folder.join(name);
        let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let read: Value = serde_json::from_slice(&text).unwrap();
        let numbers = |key: &str| -> Vec<f32> {
            let all = read[key].as_array().unwrap().iter();
            all.map(|n| n.as_f64().unwrap() as f32).collect()
        };
        let ids = |key: &str| -> Vec<u32> {
            let all = read[key].as_array().unwrap().iter();
            all.map(|n| n.as_u64().unwrap() as u32).collect()
        };
        assert_eq!(ids("prompt_ids"), PROMPT, "{}", path.display());
        Canary {
            prompt_ids: ids("prompt_ids"),
            ids: ids("ids"),
            logprobs: numbers("logprobs"),
            margins: numbers("margins"),
        }
    }

    /// As the engine that the tests play answers when it is started with the model.
    fn hashed(&self, number: u64) -> Canary {
        let folder = self.folder(number);
        let (ids, logprobs) = super::scene::played_answer(&folder, &PROMPT, 8);
        Canary {
            prompt_ids: PROMPT.to_vec(),
            margins: vec![f32::MAX; ids.len()],
            ids,
            logprobs,
        }
    }
}

/// What a test wants otherwise than the demo has it.
#[derive(Debug, Clone)]
pub struct Wish {
    pub kind: Kind,
    /// `disk`, `plugin`.
    pub weights: &'static str,
    /// `always`, `never`.
    pub flush: &'static str,
    /// What the played engine does wrong; the real ones do it by themselves.
    pub quirk: Option<&'static str>,
    /// What is looked at after a load.
    pub verify: &'static [&'static str],
    /// `small`, `large`.
    pub size: &'static str,
    /// Whether the engine's own port is everybody's, not the shim's alone.
    pub open: bool,
}

impl Wish {
    /// The way that works for the engine: on a processor only the plugin loads vLLM's tied head.
    pub fn sound(kind: Kind) -> Self {
        let weights = match (kind, real()) {
            (Kind::Vllm, Some(_)) => "plugin",
            _ => "disk",
        };
        Self {
            kind,
            weights,
            flush: "always",
            quirk: None,
            verify: &["version", "checksum", "canary"],
            size: "small",
            open: false,
        }
    }

    /// The job that the shim is given.
    pub fn job(&self, model: &Path) -> Job {
        let name = match real() {
            Some(_) => format!("demo-{}.toml", self.kind.name()),
            None => "engines-fake.toml".to_owned(),
        };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/jobs");
        let text = std::fs::read_to_string(path.join(&name)).unwrap();
        let mut table: Table = text.parse().unwrap();
        let rollout = table["rollout"].as_table_mut().unwrap();
        rollout.insert("swap".into(), "step".into());
        let command = rollout["command"].as_table_mut().unwrap();
        command.insert("kind".into(), self.kind.name().into());
        command.insert("weights".into(), self.weights.into());
        command.insert("flush".into(), self.flush.into());
        let looks: Vec<Toml> = self.verify.iter().copied().map(Toml::from).collect();
        command.insert("verify".into(), looks.into());
        match real() {
            Some(_) => {
                lengthen(command);
                if self.kind == Kind::Sglang {
                    let loader = ["--custom-weight-loader", LOADER].map(Toml::from);
                    command["argv"].as_array_mut().unwrap().extend(loader);
                }
            }
            None => drop(command.insert("argv".into(), self.played().into())),
        }
        if self.open {
            open(command);
        }
        let mut job = Job::parse(&table.to_string(), &path.join(&name)).unwrap();
        job.resolve(&path);
        job.model.path = Some(model.to_owned());
        job
    }

    /// The same by our receiver within the engine.
    pub fn plugin(kind: Kind) -> Self {
        Self {
            weights: "plugin",
            ..Self::sound(kind)
        }
    }

    fn played(&self) -> Vec<Toml> {
        let program = format!("{{env:{FAKE}}}");
        let mut argv: Vec<&str> = vec![&program, "--dialect", self.kind.name()];
        argv.extend(["--model-path", "{model}", "--host", "{bind}", "--port"]);
        argv.extend(["{port}", "--enable-scale-out", "--tokens-per-s", "150"]);
        argv.extend(["--time-scale", "0.1"]);
        argv.extend(match self.kind {
            Kind::Vllm => ["--weight-transfer-config", BACKEND],
            Kind::Sglang => ["--custom-weight-loader", LOADER],
        });
        argv.extend(self.quirk.iter().flat_map(|quirk| ["--quirk", quirk]));
        argv.into_iter().map(Toml::from).collect()
    }
}

/// The demos' engines are made for turns of a few tokens.
fn lengthen(command: &mut Table) {
    let argv = command["argv"].as_array_mut().unwrap();
    let bounds = ["--max-model-len", "--context-length"].map(|flag| Some(flag.to_owned()));
    for at in 1..argv.len() {
        if bounds.contains(&argv[at - 1].as_str().map(str::to_owned)) {
            argv[at] = LENGTH.to_string().into();
        }
    }
}

/// An engine that listens on a socket gets a port instead, and none has a network of its own.
fn open(command: &mut Table) {
    command.insert("isolate".into(), "loopback".into());
    let argv = command["argv"].as_array_mut().unwrap();
    if let Some(at) = argv.iter().position(|word| word.as_str() == Some("--uds")) {
        let listen = ["--host", "{bind}", "--port", "{port}"].map(Toml::from);
        argv.splice(at..at + 2, listen);
    }
}
