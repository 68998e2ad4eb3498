//! Engines whose processes are killed or stand still.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::kind::{Kind, PROMPT, Wish};
use super::reply::turn;
use super::scene::Scene;

/// A standing engine answers nothing; a sound one does so at once.
const SHORT: Duration = Duration::from_secs(4);

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The process of this title, or for none of them the one that was started.
fn process(scene: &Scene, title: Option<&str>) -> i32 {
    let all = scene.engine();
    let found = match title {
        Some(title) => all.iter().find(|(_, line)| line.contains(title)),
        None => all.first(),
    };
    found.unwrap_or_else(|| panic!("no {title:?} in {all:?}")).0
}

/// Whoever of them stands still, the probe is not answered, and is again when it goes on.
fn a_standing_process_is_no_healthy_engine(scene: &Scene, titles: &[Option<&str>]) {
    for title in titles {
        let pid = process(scene, *title);
        signal(pid, Signal::STOP);
        let (status, text) = scene.get_within("/health_generate", SHORT);
        signal(pid, Signal::CONT);
        assert_ne!(status, 200, "{title:?} stands still: {text}");
        let deadline = Instant::now() + Duration::from_secs(60);
        while scene.get_within("/health_generate", SHORT).0 != 200 {
            assert!(Instant::now() < deadline, "{title:?}: {}", scene.log());
        }
    }
}

fn is_named(scene: &mut Scene, title: Option<&str>) {
    let pid = process(scene, title);
    signal(pid, Signal::KILL);
    let (code, words) = scene.ended();
    assert_eq!(code, 6, "{words}");
    let name = title.unwrap_or_default();
    let wanted = format!("{name} (pid {pid}) ended: SIGKILL");
    assert!(words.contains(wanted.trim_start()), "{wanted:?} in {words}");
}

fn lives_through(kind: Kind, worker: &str, standing: &[Option<&str>]) {
    let mut scene = Scene::start(&Wish::sound(kind));
    scene.load(1, 1);
    a_standing_process_is_no_healthy_engine(&scene, standing);
    is_named(&mut scene, None);
    scene.next_life_finds_nothing();
    scene.load(2, 2);
    let canary = scene.models.canary(2);
    let said = scene.generate(&turn(&PROMPT, canary.ids.len()));
    assert_eq!(said.ids, canary.ids);
    is_named(&mut scene, Some(worker));
}

#[test]
fn vllm_is_found_out_when_a_process_of_it_stands_still_or_is_killed() {
    let standing = [None, Some("VLLM::EngineCore"), Some("VLLM::Worker")];
    lives_through(Kind::Vllm, "VLLM::Worker", &standing);
}

#[test]
fn sglang_is_found_out_when_a_process_of_it_stands_still_or_is_killed() {
    lives_through(
        Kind::Sglang,
        "sglang::scheduler",
        &[None, Some("sglang::scheduler")],
    );
}
