#!/usr/bin/env bash
# The tests of the shim with the real engines that ENGINES names (`make test-engines`), one at a time:
# engines want all the memory and processors that there are. Arguments go to the test runner.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -n "${ENGINES:-}" ] || { echo "test_engines: error: ENGINES is not set; run: make test-engines" >&2; exit 1; }
cargo build --locked -p robust-shim -p fake-engine --bins
if cargo nextest --version >/dev/null 2>&1; then
  cargo nextest run --locked -p robust-shim --test engines -j 1 --no-fail-fast "$@"
else
  cargo test --locked -p robust-shim --test engines "$@" -- --test-threads=1
fi
