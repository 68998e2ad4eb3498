//! A turn whose engine dies goes on at another one, of another make even.

use rustix::process::{Pid, Signal, kill_process};

use super::kind::{Kind, PROMPT, Wish};
use super::reply::{same, stream, turn};
use super::scene::Scene;

const TOKENS: usize = 120;

fn goes_on(from: Kind, worker: &str, to: Kind) {
    let start = |kind| {
        let mut scene = Scene::start(&Wish::sound(kind));
        scene.load(1, 1);
        scene
    };
    let (mut first, second) = (start(from), start(to));
    let whole = second.generate(&turn(&PROMPT, TOKENS));
    let mut running = first.begin(&stream(&PROMPT, TOKENS));
    running.until(10);
    let (pid, _) = first
        .engine()
        .into_iter()
        .find(|(_, line)| line.contains(worker))
        .unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let begun = running.end();
    first.ended();
    let made = begun.ids.len();
    assert!((10..TOKENS).contains(&made), "{begun:?}");
    let prefix: Vec<u32> = PROMPT
        .into_iter()
        .chain(begun.ids.iter().copied())
        .collect();
    let rest = second.generate(&turn(&prefix, TOKENS - made));
    assert_eq!([begun.ids, rest.ids].concat(), whole.ids);
    let logprobs = [begun.logprobs, rest.logprobs].concat();
    assert!(same(&logprobs, &whole.logprobs), "{logprobs:?} {whole:?}");
}

#[test]
fn a_turn_of_a_killed_vllm_goes_on_at_sglang() {
    goes_on(Kind::Vllm, "VLLM::Worker", Kind::Sglang);
}

#[test]
fn a_turn_of_a_killed_sglang_goes_on_at_vllm() {
    goes_on(Kind::Sglang, "sglang::scheduler", Kind::Vllm);
}
