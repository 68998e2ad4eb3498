#!/usr/bin/env bash
# Runs the tests with nextest where it is installed, else with cargo test. Arguments go to both. However the run
# ends, it says at its end which tests did not run and why; where CI is set, one such test is a failure.
#   SLOW=none|all|K/N   which of the slow tests (scripts/slow_tests) run as well: none, all, or the Kth of N shares.
#                       Without nextest all run.
set -euo pipefail
cd "$(dirname "$0")/.."

SLOW=${SLOW:-none}
[[ "$SLOW" =~ ^(none|all|[1-9][0-9]*/[1-9][0-9]*)$ ]] || { echo "tests: error: SLOW is none, all or K/N, and not $SLOW" >&2; exit 2; }
slow=$(grep -v '^#' scripts/slow_tests | paste -sd'|')

skips=$(mktemp -d)
export ROBUST_SKIPS="$skips"   # tests/needs writes there
# The fault search looks at seeds that no commit had before (shared/sim/tests/fresh).
commit=$(git log -1 --format=%ct 2>/dev/null || echo 3000)
export ROBUST_FRESH_SEEDS=${ROBUST_FRESH_SEEDS:-${commit}000}
left_out=
finish() {
  local code=$?
  echo "fresh seeds of the fault search: robustctl sim search --from $ROBUST_FRESH_SEEDS --seeds 20000"
  [ -z "$left_out" ] || echo "$left_out"
  scripts/skips.sh "$skips" || [ "$code" != 0 ] || code=1
  rm -rf "$skips"
  exit "$code"
}
trap finish EXIT

# A good part of the tests waits, for a job's next step or for a window to pass: one more than there are cores.
export NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-$(($(nproc) + 1))}

if ! cargo nextest --version >/dev/null 2>&1; then
  cargo test --locked --workspace "$@"
  cargo test --locked -p robust-sim --features mutations seeded_bug
  exit
fi

cargo test --locked --workspace "$@" --doc --quiet   # nextest runs no documentation tests
code=0
run() { cargo nextest run --locked --workspace "$@" || code=$?; }
case $SLOW in
  all) run "$@" ;;
  none)
    left_out="tests: the slow ones did not run (scripts/slow_tests); make test SLOW=all runs them too"
    run "$@" -E "not ($slow)"
    ;;
  *)
    left_out="tests: of the slow ones (scripts/slow_tests) share $SLOW ran; make test SLOW=all runs all of them"
    run "$@" -E "not ($slow)"
    run "$@" -E "$slow" --partition "slice:$SLOW" --no-tests pass
    ;;
esac
[ "$code" = 0 ] || exit "$code"
# Once more with seeded bugs in the core: the fault search must find each of them.
cargo nextest run --locked -p robust-sim --features mutations seeded_bug
