//! Trajectories that take engines along, in whole jobs: what they cost, and that every step is committed.
use super::*;

const fn t(batch: u64, group: u32, member: u32) -> TrajectoryId {
    TrajectoryId {
        batch,
        group,
        member,
    }
}

#[test]
fn a_prompt_whose_responses_all_kill_engines_costs_neither_the_task_nor_another_prompt() {
    // Responses, engines, requests that one takes.
    let shapes = [(4, 1, 64), (4, 2, 32), (4, 4, 8), (16, 2, 64)];
    let runs = shapes
        .into_iter()
        .flat_map(|shape| (0..6).map(move |seed| (shape, seed)));
    let mut wrong = Vec::new();
    for ((responses, rollouts, engine_requests), seed) in runs {
        let config = CoreConfig {
            hybrids: 0,
            rollouts,
            engine_requests,
            agents: 2,
            prompts: 4,
            responses,
            agent_concurrency: 64,
            rules: quick_rules().with(|r| r.poison.engines.set(2)),
            ..small(Mode::Async, 3)
        };
        // A verdict may come long after the streams broke.
        let timing = Timing {
            turn: Span::between(ms(60), ms(200)),
            told: Span::between(ms(0), ms(3000 * (seed % 2))),
            ..Timing::default()
        };
        let mut w = World::with(config, timing, seed);
        (0..responses).for_each(|member| w.poison(t(2, 1, member)));
        w.run_to_end();
        let incidents = w.incidents();
        let dear = incidents.iter().map(|i| i.plan.as_str());
        let dear: Vec<_> = dear
            .filter(|p| !p.starts_with("restart rollout-"))
            .collect();
        let ends = (w.committed(), w.core.view(w.now).set_aside);
        if !dear.is_empty() || ends != (3, u64::from(responses)) {
            let deaths = incidents.len();
            wrong.push(format!(
                "{responses} {rollouts} {engine_requests} {seed}: {deaths} {ends:?} {dear:?} {:?}",
                w.outcome
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn in_every_mode_a_job_with_a_poisoned_trajectory_commits_every_step() {
    for mode in [Mode::Sync, Mode::SemiSync, Mode::Async] {
        let config = CoreConfig {
            hybrids: if mode == Mode::Async { 0 } else { 2 },
            rules: quick_rules().with(|r| r.poison.engines.set(2)),
            ..small(mode, 4)
        };
        let mut w = World::new(config, 5);
        w.poison(t(2, 1, 3));
        w.run_to_end();
        assert_eq!(
            (w.committed(), w.core.view(w.now).set_aside),
            (4, 1),
            "{mode:?}"
        );
    }
}
