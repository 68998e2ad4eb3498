#!/usr/bin/env bash
# Runs fixtures/jobs/demo.toml to its end with the programs in DIR (first argument).
#   DEMO_STEPS=N   that many steps       DEMO_TUI=0   no console even on a terminal
#   DEMO_JOB=FILE  another job file      ROBUST_STATE_DIR=DIR  keep the state there, instead of what was
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(cd "$1" && pwd)
job=${DEMO_JOB:-fixtures/jobs/demo.toml}
state=${ROBUST_STATE_DIR:-}
if [ -z "$state" ]; then
  state=$(mktemp -d "${TMPDIR:-/tmp}/robust-demo.XXXXXX")
  trap 'rm -rf "$state"' EXIT
fi
args=(--job "$job" --state-dir "$state" --fresh)
[ -z "${DEMO_STEPS:-}" ] || args+=(--steps "$DEMO_STEPS")

if [ "${DEMO_TUI:-1}" = 0 ] || ! [ -t 0 ] || ! [ -t 1 ]; then
  # The step lines are on standard output; of the log only set-up, warnings and faults.
  RUST_LOG=${RUST_LOG:-warn,robustd::cli=info} "$bin/robustd" "${args[@]}"
  exit
fi

mkdir -p "$state"
"$bin/robustd" "${args[@]}" >"$state/robustd.out" 2>"$state/robustd.err" &
daemon=$!
stop() { kill -TERM "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true; }
trap 'stop; [ -n "${ROBUST_STATE_DIR:-}" ] || rm -rf "$state"' EXIT
"$bin/robustctl" --state-dir "$state" tui --exit-when-done --wait-for-daemon || true
kill -TERM "$daemon" 2>/dev/null || true   # a no-op when the job is over
rc=0; wait "$daemon" || rc=$?
sed -n '/^job /,$p' "$state/robustd.out"
# The console was left before the job was over: it ends with it, and nothing went wrong.
[ "$rc" != 143 ] || { echo "demo: ended with the console; \`robustd\` by hand goes on without one"; rc=0; }
[ "$rc" = 0 ] || { echo "robustd ended with exit code $rc; its last words:" >&2; tail -n 5 "$state/robustd.err" >&2; }
trap - EXIT
[ -n "${ROBUST_STATE_DIR:-}" ] || rm -rf "$state"
exit "$rc"
