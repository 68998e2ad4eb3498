//! A program that answers as **vLLM 0.32.0** or **SGLang 0.5.23** does, for tests and drills
//! without them.
//!
//! ```text
//!  client ── HTTP ──► leader ───── pipes ────► children, this program again under the real names
//!                       http/{sglang,vllm}       engine: requests, pauses, weights, tokens
//! ```
//! It is started with a real engine's command line and only the program's name changed; options
//! that mean nothing here are accepted. Replies have the shapes of the recordings in
//! `fixtures/engines`, and the tests of this crate replay every recorded request.
//!
//! **Tokens** are a hash of the weights and of all tokens so far, `--tokens-per-s` of them for each
//! request. The weights are really read from `DIR/model.safetensors` (none there: as with dummy
//! weights), so another folder gives other tokens, and checksums are those that the real engine
//! tells of the same file.
//!
//! **Processes**: vLLM's leader has `VLLM::EngineCore`, which has `VLLM::Worker`; SGLang's has
//! `sglang::scheduler` and `sglang::detokenizer`; both have Python's resource tracker. Names are
//! those of `/proc/PID/comm` and `cmdline`, and their files in `/dev/shm` are mapped as the real
//! ones' are. Tokens really come through their pipes:
//!
//! | what happens | vLLM | SGLang |
//! | --- | --- | --- |
//! | worker, scheduler stopped | `/health` 200, requests hang | `/health` hangs, `/ready` 200 |
//! | a child killed: at first | `/health` 503 after 0.25 s, port closed after 2 s | all hangs |
//! | a child killed: the leader | gone after 3 s, **with 0** | after 6.5 s, by SIGKILL; files stay |
//! | leader killed | children live on (300 s at most), files stay | gone within 2 s, files stay |
//! | leader gets SIGTERM | all gone, with 0 | all gone, by SIGTERM; one file stays |
//!
//! The times are multiplied with `--time-scale`. Once the real SGLang's leader took 0.4 to 1.3 s
//! instead of 6 to 8; the slow one is played, for it is the one that watching only the leader
//! misses.
//!
//! **Quirks**, by `--quirk NAME[=ARG]` and by `FAKE_ENGINE_QUIRKS`, separated by commas:
//!
//! | quirk | what it does |
//! | --- | --- |
//! | `hang[=TOKENS]` | after so many tokens in all no request gets another; `/health` is 200 |
//! | `orphan-children` | children outlive their leader, however it ends (300 s at most) |
//! | `slow-pause[=SECONDS]` | a pause takes so much longer |
//! | `lying-reload[=LOADS]` | so many loads are acknowledged, and tokens are as before |
//! | `wrong-reload=FIRST` | that load and the next are acknowledged, and load other numbers |
//! | `stale-kv` | a prompt seen before is answered from the weights of then, until a flush |
//! | `die-in-load` | a load kills the process that does it |
//! | `poison=TOKEN[+..]` | a request with this token, or beginning with these, kills who works on it |
//! | `exit-zero` | the leader ends with 0 when a child dies (vLLM's does anyway) |
//! | `late-start=SECONDS` | so long nothing listens |
//! | `never-ready` | nothing ever listens |
//! | `bad-logprobs[=OFFSET]` | log probabilities are told with this added (-1) |
//! | `hang-wake[=WAKES]` | after so many wake-ups the next one is never answered |
//! | `forgetful-wake` | keys and values that come again lie over the weights |
//!
//! Not played: sampling parameters other than length, stop tokens and seed; more than one choice;
//! weights over collectives; more than one rank.
//!
//! **Sleep**: with `--enable-sleep-mode` (vLLM) and `--enable-memory-saver` (SGLang) memory is given
//! back by tags. Who then loads, digests or generates dies; so does a SGLang that is told to while a
//! request is under way, or told to take what it has. Weights come again at vLLM's level 1 and with
//! SGLang's `--enable-weights-cpu-backup`, else what lies there is anything, under the old version's
//! name. vLLM goes on by itself with the last part that comes. This is after both engines' source: it
//! needs a device, so nothing of it is recorded. Without the switches nothing is given back, as
//! recorded, and requests wait.

mod args;
mod crash;
mod engine;
mod http;
mod leader;
mod link;
mod memory;
mod model;
mod protocol;
mod quirks;
mod sampler;
mod shm;
mod tree;
mod weights;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(ended) = tree::child() {
        return ended;
    }
    match args::Args::read(std::env::args()) {
        Err(args::ArgsError::Parse(error)) => error.exit(),
        Err(error) => leader::failed(&error),
        Ok(args) => leader::run(args).unwrap_or_else(|error| leader::failed(&*error)),
    }
}
