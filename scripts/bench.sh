#!/usr/bin/env bash
# Measures with the programs in DIR (first argument); JSON under target/bench.
#   recovery.json  BENCH_KILLS (default 25) SIGKILLs of a trainer rank in the demo job (BENCH_JOB: another), then of
#                  rollouts while the job waits: where the time of detection and recovery goes
#   sim.json       the paper's experiments in virtual time, the controller's cost per input, and a week
#                  of 10,000 nodes
#   state.json     bytes and microseconds of the controller's state with a record: what changed of it, beside all
#                  of it, at 7, 200 and 10,000 instances
#   weights.json   transfers of weights between processes, beside UCX's perf tool, TCP, memcpy and gloo; relays
#                  on shaped links; what changed instead of all; recovery; the simulator's curve for 1 to 256
#                  rollouts; what pulls cost an engine that generates. `make bench` adds nixl and mooncake (bench_peers.py), and what real steps change
#                  (bench_deltas.py)
#   console.json   the console with 1,000 instances at 200x60: time of a frame, CPU while nobody touches it
#   hosting.json   engines of the user's (the tests' engine here; the real ones: make bench-engines), killed and
#                  stopped under a job that trains, and a shim beside its engine
#   store.json     snapshots, checkpoints and the store, beside memcpy, plain writes and torch's ways to save
#                  (ROBUST_BENCH_PYTHON: a Python with torch); what 200 kills at random points lost
#   drill.json     fixtures/drills/paper.toml: no faults, policy task, policy role
# Everything is shared-machine timing: medians, with the load beside them.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(cd "$1" && pwd)
kills=${BENCH_KILLS:-25}
out=${CARGO_TARGET_DIR:-target}/bench
# A python with torch has gloo, and the ways of torch to save.
export ROBUST_BENCH_PYTHON=${ROBUST_BENCH_PYTHON:-${TORCH_PYTHON:-}}
mkdir -p "$out"
state=$(mktemp -d "${TMPDIR:-/tmp}/robust-bench.XXXXXX")
"$bin/robustd" --job "${BENCH_JOB:-fixtures/jobs/demo.toml}" --state-dir "$state" --steps 100000 >"$state/out" 2>"$state/err" &
daemon=$!
stop() {
  kill -TERM $daemon 2>/dev/null || true
  wait $daemon 2>/dev/null || true
  rm -rf "$state"
}
trap stop EXIT
python3 scripts/bench_recovery.py "$bin/robustctl" "$state" "$kills" "$out/recovery.json"
trap - EXIT
stop
python3 - "$bin/robustctl" "$out/sim.json" <<'EOT'
import json, os, subprocess, sys
ctl, out = sys.argv[1:]
parts = [subprocess.check_output([ctl, "sim", part, "--json"]) for part in ("paper", "scale")]
both = json.loads(parts[0]) | json.loads(parts[1]) | {"load": os.getloadavg()[0]}
json.dump(both, open(out, "w"), indent=1)
EOT
"$bin/robust-bench" state --out "$out/state.json"
"$bin/robust-bench" weights --out "$out/weights.json"
# What weights on their way cost an engine that generates; an example, for no program has both.
for road in "" --tls; do
  cargo run --locked --release --quiet -p robust-worker --example beside_generation -- --out "$out/weights.json" $road
done
"$bin/robust-bench" console --out "$out/console.json"
scripts/bench_hosting.sh "$bin" "$out/hosting.json"
"$bin/robust-bench" store --out "$out/store.json"
# A test, in the tests' profile: it fails, and this script with it, if anything is lost.
ROBUST_CRASH_JSON="$(cd "$out" && pwd)/crash.json" cargo test --locked --quiet -p robustd --test robustd \
  whoever_is_killed_at_whatever_point
python3 - "$out" <<'EOT'
import json, os, sys
out = sys.argv[1]
store, crash = (json.load(open(f"{out}/{name}.json")) for name in ("store", "crash"))
load = os.getloadavg()[0]
for key in ("crash_points", "lost"):
    value = crash[key]
    store[key] = {"median": value, "min": value, "max": value, "all": [value], "load": load}
json.dump(store, open(f"{out}/store.json", "w"), indent=1)
os.remove(f"{out}/crash.json")
EOT
"$bin/robustctl" drill fixtures/drills/paper.toml --out "$out/drill.json"
