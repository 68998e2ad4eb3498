#!/usr/bin/env bash
# Runs the tests with nextest where it is installed, else with cargo test. Arguments go to both. However the run
# ends, it says at its end which tests did not run and why; where CI is set, one such test is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

skips=$(mktemp -d)
export ROBUST_SKIPS="$skips"   # tests/needs writes there
# The fault search looks at seeds that no commit had before (shared/tests/fresh).
commit=$(git log -1 --format=%ct 2>/dev/null || echo 3000)
export ROBUST_FRESH_SEEDS=${ROBUST_FRESH_SEEDS:-${commit}000}
finish() {
  local code=$?
  echo "fresh seeds of the fault search: robustctl sim search --from $ROBUST_FRESH_SEEDS --seeds 20000"
  scripts/skips.sh "$skips" || [ "$code" != 0 ] || code=1
  rm -rf "$skips"
  exit "$code"
}
trap finish EXIT

# A good part of the tests waits, for a job's next step or for a window to pass: one more than there are cores.
export NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-$(($(nproc) + 1))}

if cargo nextest --version >/dev/null 2>&1; then
  cargo test --locked --workspace "$@" --doc --quiet   # nextest runs no documentation tests
  cargo nextest run --locked --workspace "$@"
  # Once more with seeded bugs in the core: the fault search must find each of them.
  cargo nextest run --locked -p robust-shared --features mutations seeded_bug
else
  cargo test --locked --workspace "$@"
  cargo test --locked -p robust-shared --features mutations seeded_bug
fi
