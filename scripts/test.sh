#!/usr/bin/env bash
# Runs the tests with nextest where it is installed, else with cargo test. Arguments go to both.
set -euo pipefail
cd "$(dirname "$0")/.."
if cargo nextest --version >/dev/null 2>&1; then
  cargo test --locked --workspace "$@" --doc --quiet   # nextest runs no documentation tests
  cargo nextest run --locked --workspace "$@"
  # Once more with seeded bugs in the core: the fault search must find each of them.
  cargo nextest run --locked -p robust-shared --features mutations seeded_bug
else
  cargo test --locked --workspace "$@"
  cargo test --locked -p robust-shared --features mutations seeded_bug
fi
