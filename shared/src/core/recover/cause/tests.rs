//! What real programs wrote when they died.
#![allow(clippy::unwrap_used)]
use super::*;
use std::time::Duration;

fn code(code: i32, log: &str) -> Option<Cause> {
    Cause::of_exit(&Exit::Code(code), log)
}

fn signal(signal: i32, log: &str) -> Option<Cause> {
    Cause::of_exit(&Exit::Signal(signal), log)
}

fn words(cause: Option<Cause>) -> String {
    cause.map(|cause| cause.words).unwrap_or_default()
}

const TRACEBACK: &str = r#"step 12: loss 0.31
Traceback (most recent call last):
  File "/home/me/job/train.py", line 88, in <module>
    main()
  File "/home/me/job/train.py", line 61, in main
    loss = step(batch)
           ^^^^^^^^^^^
  File "/home/me/job/train.py", line 40, in step
    return rewards[batch.ids]
           ~~~~~~~^^^^^^^^^^^
KeyError: 'prompt'
"#;

const CUDA: &str = r#"Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", line 125, in forward
    return F.linear(input, self.weight, self.bias)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.13 GiB is free. Process 48213 has 77.97 GiB memory in use.
"#;

const RUST: &str = "\nthread 'main' (48213) panicked at daemon/worker/src/trainer/step.rs:142:17:\n\
    index out of bounds: the len is 32 but the index is 32\n\
    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";

const VLLM: &str = r#"(EngineCore_DP0 pid=48213) ERROR 11-25 17:44:43 [core.py:710] EngineCore encountered a fatal error.
(EngineCore_DP0 pid=48213) ERROR 11-25 17:44:43 [core.py:710] Traceback (most recent call last):
(EngineCore_DP0 pid=48213) ERROR 11-25 17:44:43 [core.py:710]   File "/opt/vllm/v1/engine/core.py", line 701, in run_engine_core
(EngineCore_DP0 pid=48213) ERROR 11-25 17:44:43 [core.py:710]     engine_core.run_busy_loop()
(EngineCore_DP0 pid=48213) ERROR 11-25 17:44:43 [core.py:710]   File "/opt/vllm/v1/worker/gpu_model_runner.py", line 2012, in execute_model
(EngineCore_DP0 pid=48213) ERROR 11-25 17:44:44 [core.py:710]     logits = self.model.compute_logits(hidden)
(EngineCore_DP0 pid=48213) ERROR 11-25 17:44:44 [core.py:710] RuntimeError: CUDA error: an illegal memory access was encountered
(EngineCore_DP0 pid=48213) ERROR 11-25 17:44:44 [core.py:710] Search for `cudaErrorIllegalAddress' in the runtime API reference
"#;

const NCCL: &str = "[rank3]:[E1125 17:44:43.120 ProcessGroupNCCL.cpp:683] [Rank 3] Watchdog caught collective operation timeout\n\
    terminate called after throwing an instance of 'c10::DistBackendError'\n  \
    what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] NCCL watchdog thread terminated with exception: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1841, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600032 milliseconds before timing out.\n";

const FAULTHANDLER: &str = "Fatal Python error: Segmentation fault\n\n\
    Thread 0x00007f2a1c5fe640 (most recent call first):\n  \
    File \"/usr/lib/python3.12/threading.py\", line 355 in wait\n\n\
    Current thread 0x00007f2a9d1f4740 (most recent call first):\n  \
    File \"/home/me/job/kernels.py\", line 19 in launch\n  \
    File \"/home/me/job/train.py\", line 40 in step\n";

#[test]
fn a_cause_says_in_a_line_what_happened() {
    let torch = "exit code 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3";
    for (cause, said) in [
        (code(1, TRACEBACK), "exit code 1: KeyError: 'prompt'"),
        (code(1, CUDA), torch),
        (
            code(101, RUST),
            "exit code 101: panic: index out of bounds: the len is 32 but the index is 32",
        ),
        (
            code(1, VLLM),
            "exit code 1: RuntimeError: CUDA error: an illegal memory access was encountered",
        ),
        (
            signal(6, NCCL),
            "killed by signal 6: c10::DistBackendError: [PG ID 0",
        ),
        (
            signal(11, FAULTHANDLER),
            "killed by signal 11: Fatal Python error: Segmentation fault",
        ),
        (signal(11, "step 12: loss 0.31"), "killed by signal 11"),
        (
            code(4, "loading\nerror: no tensor `lm_head`\nend\n----\n"),
            "exit code 4: no tensor `lm_head`",
        ),
        (code(2, ""), "exit code 2"),
        (
            Cause::of_error("rank 1: the loss is NaN"),
            "rank 1: the loss is NaN",
        ),
        (Cause::of_error(TRACEBACK), "KeyError: 'prompt'"),
    ] {
        let words = words(cause);
        assert!(words.starts_with(said), "{words}");
        assert!(!words.contains('\n'), "{words}");
        assert!(words.chars().count() <= WORDS_KEPT + 1, "{words}");
    }
}

#[test]
fn the_same_is_known_again_with_other_numbers_lines_and_places() {
    for (log, again) in [
        (
            TRACEBACK,
            TRACEBACK
                .replace("line 40", "line 43")
                .replace("step 12: loss 0.31", "step 13: loss 1e-4")
                .replace("/home/me/job", "/tmp/tmpx8_kq2ab/job"),
        ),
        (
            CUDA,
            CUDA.replace("2.00 GiB", "512.50 GiB")
                .replace("GPU 3", "GPU 5")
                .replace("48213", "9127")
                .replace("python3.12", "python3.13"),
        ),
        (
            RUST,
            RUST.replace("(48213)", "(7)")
                .replace("142:17", "150:9")
                .replace("32", "64"),
        ),
        (
            VLLM,
            VLLM.replace("pid=48213", "pid=50001")
                .replace("17:44:43", "03:01:09")
                .replace("17:44:44", "03:01:10"),
        ),
        (
            NCCL,
            NCCL.replace("Rank 3", "Rank 11")
                .replace("rank3", "rank11")
                .replace("1841", "977")
                .replace("600032", "600007"),
        ),
        (
            FAULTHANDLER,
            FAULTHANDLER
                .replace("0x00007f2a9d1f4740", "0x00007fe10d1f4740")
                .replace("line 19", "line 21"),
        ),
    ] {
        assert_ne!(log, again);
        let of = |log: &str| {
            let ended = [code(1, log), signal(6, log)];
            ended.map(|cause| cause.unwrap().fingerprint)
        };
        assert_eq!(of(log), of(&again), "{again}");
    }
}

#[test]
fn what_is_not_the_same_is_told_apart() {
    let causes = [
        code(1, TRACEBACK),
        code(1, &TRACEBACK.replace("'prompt'", "'answer'")),
        code(1, &TRACEBACK.replace("KeyError", "IndexError")),
        code(1, &TRACEBACK.replace("in step", "in score")),
        code(1, &TRACEBACK.replace("train.py", "reward.py")),
        code(3, TRACEBACK),
        code(1, &format!("{TRACEBACK}error: the store is gone")),
        code(1, CUDA),
        code(101, RUST),
        code(101, &RUST.replace("step.rs", "restore.rs")),
        code(1, VLLM),
        signal(6, NCCL),
        signal(6, &NCCL.replace("ALLREDUCE", "BROADCAST")),
        signal(6, ""),
        signal(11, ""),
        signal(11, FAULTHANDLER),
        code(4, "error: no tensor `lm_head`"),
        code(4, "error: no tensor `embed`"),
        code(4, ""),
        Cause::of_error("the loss is NaN"),
        Cause::of_error("the gradient's norm is NaN"),
    ];
    let all: Vec<Cause> = causes.into_iter().map(Option::unwrap).collect();
    for (at, cause) in all.iter().enumerate() {
        let same = all.iter().filter(|c| c.fingerprint == cause.fingerprint);
        assert_eq!(same.count(), 1, "{at}: {}", cause.words);
    }
}

#[test]
fn a_death_from_outside_has_no_cause() {
    let interrupted = "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyboardInterrupt\n";
    for cause in [
        signal(9, TRACEBACK),
        signal(15, ""),
        signal(2, interrupted),
        code(0, TRACEBACK),
        code(137, ""),
        code(143, "terminated"),
        code(5, "error: no daemon for 60 s"),
        code(1, interrupted),
        code(1, "error: trainer-program (pid 7) ended: SIGKILL: step 12"),
        code(
            1,
            "exitcode  : -9 (pid: 7)\ntraceback : Signal 9 (SIGKILL) received by PID 7",
        ),
        Cause::of_exit(&Exit::Gone, TRACEBACK),
        Cause::of_error(" \n"),
    ] {
        assert_eq!(cause, None);
    }
    assert!(code(139, "").is_some(), "a shell's word for SIGSEGV");
}

#[test]
fn a_traceback_that_was_cut_off_does_not_hide_the_last_line() {
    let log = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\n";
    assert_eq!(words(code(1, log)), "exit code 1: g()");
}

#[test]
fn a_fingerprint_is_the_same_for_ever_for_it_is_stored() {
    let cause = code(4, "error: no tensor `lm_head`").unwrap();
    assert_eq!(cause.fingerprint.to_string(), "91b2a947f85fabd6");
}

#[test]
fn each_cause_is_counted_on_its_own_until_work_was_done() {
    let mut causes = Causes::default();
    let at = |s: u64| Time(1_000_000_000) + Duration::from_secs(s);
    let [one, other] = [Fingerprint(1), Fingerprint(2)];
    assert_eq!(causes.strike(one, at(0)), 1);
    assert_eq!(causes.strike(other, at(1)), 1);
    assert_eq!(causes.strike(one, at(100_000)), 2, "no time ends a row");
    causes.take_back(one, at(100_000));
    assert_eq!(causes.in_a_row(one), 1);
    causes.clear();
    assert!(causes.is_empty());
    assert_eq!(causes.strike(other, at(100_001)), 1);
    causes.take_back(other, at(1));
    assert_eq!(causes.in_a_row(other), 1, "that was another row");
}

#[test]
fn no_more_causes_are_kept_than_a_bound_and_the_oldest_goes() {
    let mut causes = Causes::default();
    for n in 0..CAUSES_KEPT as u64 {
        causes.strike(Fingerprint(n), Time(n));
    }
    causes.strike(Fingerprint(0), Time(100));
    causes.strike(Fingerprint(99), Time(101));
    assert_eq!(causes.in_a_row(Fingerprint(0)), 2);
    assert_eq!(causes.in_a_row(Fingerprint(1)), 0, "seen longest ago");
    assert_eq!(causes.0.len(), CAUSES_KEPT);
}

#[test]
fn a_kill_by_the_roles_own_limit_of_memory_is_a_cause_and_one_of_the_machines_is_none() {
    let by = |limit: &str, key| format!("step 3\n{}", memory::killed_by_limit(limit, key));
    let of = |log: &str| signal(9, log);
    let small = of(&by("64MiB", "rollout.limits.memory"));
    assert_eq!(
        words(small.clone()),
        "the kernel killed a process of it for want of memory: its limit of 64MiB (rollout.limits.memory) \
         was reached; raise it, or have what runs there need less"
    );
    // Its shim says how the engine ended, and so does an adopted process's end.
    let of_shim = format!(
        "error: the engine was ended by SIGKILL\n{}",
        by("64MiB", "rollout.limits.memory")
    );
    assert_eq!(
        code(5, &of_shim).map(|c| c.fingerprint),
        small.clone().map(|c| c.fingerprint)
    );
    let other = of(&by("64MiB", "agent.limits.memory"));
    assert_ne!(other.map(|c| c.fingerprint), small.map(|c| c.fingerprint));
    assert_eq!(
        of(&memory::killed_for_memory(
            3,
            "/sys/fs/cgroup/memory.events"
        )),
        None
    );
}
