#!/usr/bin/env bash
# Measures the hosting of engines with the programs in DIR (first argument), into the file OUT (second one).
#   scripts/bench_hosting.sh DIR OUT [vllm] [sglang]    with the engine that the tests play, where none is named
# For each: a job that trains while its engines are killed and stopped (`robust-bench hosting`; BENCH_KILLS,
# default 10; BENCH_STOPS, default 2), and a shim beside its engine with nothing else at work (a benchmark of
# robust-shim; BENCH_LARGE=1: with the model of 337 MiB, too). Real engines are those that ENGINES names.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(cd "$1" && pwd) out=$2
shift 2
parts=$(mktemp -d "${TMPDIR:-/tmp}/robust-hosting.XXXXXX")
trap 'rm -rf "$parts"' EXIT
export FAKE_ENGINE="$bin/fake-engine"
kills=(--kills "${BENCH_KILLS:-10}" --stops "${BENCH_STOPS:-2}")
large=()
[ -z "${BENCH_LARGE:-}" ] || large=(--large)
if [ $# = 0 ]; then
  unset ENGINES
  "$bin/robust-bench" hosting "${kills[@]}" --out "$parts/played.json"
  for kind in vllm sglang; do
    cargo bench --locked --quiet -p robust-shim --bench hosting -- --kind $kind --out "$parts/played-$kind.json"
  done
fi
for kind in "$@"; do
  [ -n "${ENGINES:-}" ] || { echo "bench_hosting: error: ENGINES is not set; run: make bench-engines" >&2; exit 1; }
  cargo bench --locked --quiet -p robust-shim --bench hosting -- --kind "$kind" "${large[@]}" --out "$parts/$kind-alone.json"
  "$bin/robust-bench" hosting --engines "$kind" "${kills[@]}" --out "$parts/$kind.json"
done
python3 - "$parts" "$out" <<'EOT'
import json, pathlib, sys
parts, out = map(pathlib.Path, sys.argv[1:])
# Other benchmarks write there, too.
every = json.loads(out.read_text()) if out.exists() else {}
for path in sorted(parts.glob("*.json")):
    every.setdefault(path.stem.split("-")[0], {}).update(json.loads(path.read_text()))
out.write_text(json.dumps(every, indent=1) + "\n")
EOT
