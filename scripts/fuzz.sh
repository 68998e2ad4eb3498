#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a time, from the corpus that is checked in:
#   scripts/fuzz.sh smoke [SECONDS] [TARGET...]   120 s each, two at a time where there are two cores; what is found
#                                                 is not added to the corpus that is checked in
#   scripts/fuzz.sh long [SECONDS] [TARGET...]    an hour each, one after the other, on all cores; what is found is
#                                                 kept in the cache, and is where the next run begins
#   scripts/fuzz.sh replay TARGET FILE            runs one input, with all that the target prints
#   scripts/fuzz.sh keep [TARGET...]              adds the largest inputs of what the long runs found, minimised, to the
#                                                 corpus that is checked in, in place of those that it added before
#   scripts/fuzz.sh install                       no more than cargo-fuzz itself
# A line a target says how many inputs it ran, how many it kept, and what they reached. What is found fails the run,
# with the path of the input and the command that replays it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

VERSION=0.13.2
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
TOOL="$CACHE/cargo-fuzz-$VERSION"
CARGO="${CARGO:-cargo}"
TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz"
HOST=$(rustc -vV | sed -n 's/^host: //p')
FOUND="$CACHE/fuzz"
# 0: another one each time.
SEED=0
# Inputs that `keep` adds to what is checked in of a target, and the bytes of all of them.
KEPT=24
KEPT_BYTES=32768

# The target, the feature that it is built with, and the sanitizer. Where nothing that is reached has any `unsafe`, the
# address sanitizer finds nothing, and costs half of the runs and a build of its own.
TARGETS="
wire             transport address
transport_engine transport address
core_inputs      core      none
restored_state   core      none
messages         formats   none
stored_values    formats   none
manifests        formats   none
job_file         core      none
http             formats   none
"

say() { printf 'fuzz: %s\n' "$*"; }
die() { printf 'fuzz: error: %s\n' "$*" >&2; exit 1; }

all() { awk 'NF { print $1 }' <<<"$TARGETS"; }
of() { awk -v target="$1" -v field="$2" '$1 == target { print $field }' <<<"$TARGETS"; }

install_tool() {
  [ -x "$TOOL/bin/cargo-fuzz" ] && return
  say "installing cargo-fuzz $VERSION into $TOOL"
  RUSTC_BOOTSTRAP='' CARGO_PROFILE_DEV_DEBUG=none "$CARGO" install --debug --quiet --locked cargo-fuzz --version "$VERSION" --root "$TOOL"
}

# A stable compiler has coverage counters and sanitizers when told so. Comparisons are traced for the transport only:
# it costs the controller a fifth of its runs, and formats begin with a corpus of real ones.
build() {
  install_tool
  local target features sanitizer traces
  for sanitizer in $(for target in "$@"; do of "$target" 3; done | sort -u); do
    features=$(for target in "$@"; do [ "$(of "$target" 3)" != "$sanitizer" ] || of "$target" 2; done | sort -u | paste -sd,)
    traces=()
    [ "$sanitizer" != none ] || traces=(--no-trace-compares)
    say "building the targets that link $features (sanitizer: $sanitizer)"
    RUSTC_BOOTSTRAP=1 CARGO_INCREMENTAL=0 PATH="$TOOL/bin:$PATH" "$CARGO" fuzz build --fuzz-dir tests/fuzz \
      --target-dir "$TARGET_DIR" --features "$features" --sanitizer "$sanitizer" "${traces[@]}"
  done
}

# UCX's hooks into malloc, and its signal handlers, get in the sanitizer's way.
run() {
  local target=$1
  shift
  UCX_MEM_MMAP_HOOK_MODE=none UCX_HANDLE_ERRORS=none \
  ASAN_OPTIONS=handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0 \
    "$TARGET_DIR/$HOST/release/$target" "$@"
}

# fuzz TARGET SECONDS WORKERS: from the corpus that is checked in, into a folder of its own.
fuzz() {
  local target=$1 seconds=$2 workers=$3 log="$FOUND/$1.log" grown="$FOUND/$1" artifacts="$FOUND/artifacts/$1/"
  local status=0
  mkdir -p "$grown" "$artifacts"
  rm -f "$log"
  local options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=1024 -len_control=20
    -print_final_stats=1 "-artifact_prefix=$artifacts" -seed="$SEED")
  # Workers beyond the first are processes, which the first one counts.
  [ "$workers" = 1 ] || options+=("-fork=$workers")
  run "$target" "${options[@]}" "$grown" "tests/fuzz/corpus/$target" >"$log" 2>&1 || status=$?
  summary "$target" "$log" "$status" "$artifacts"
}

# One line of what a log says.
summary() {
  local target=$1 log=$2 status=$3 artifacts=$4 runs last rate
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
  last=$(grep -aE '^#[0-9]+.* cov: ' "$log" | tail -1 || true)
  [ -n "$runs" ] || runs=$(sed -n 's/^#\([0-9]*\).*/\1/p' <<<"$last")
  rate=$(sed -n 's/.*exec\/s:\? *\([0-9]*\).*/\1/p' <<<"$last")
  printf '%-17s %12s runs  %6s/s  %s  %s\n' "$target" "${runs:-0}" "${rate:-?}" \
    "$(sed -n 's/.*\(cov: [0-9]*\) ft: \([0-9]*\) corp: \([0-9]*\).*/reached \1 places, \2 features, kept \3 inputs/p' <<<"$last" | sed 's/cov: //')" \
    "$([ "$status" = 0 ] && echo "nothing found" || echo FOUND)"
  [ "$status" != 0 ] || return 0
  local input
  input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
  grep -aE 'panicked at|ERROR: |SUMMARY: ' -A1 "$log" | head -8 >&2 || true
  printf 'fuzz: %s failed; the log is %s\n' "$target" "$log" >&2
  [ -z "$input" ] || printf 'fuzz: the input is %s; to replay it: scripts/fuzz.sh replay %s %s\n' "$input" "$target" "$input" >&2
  return 1
}

mode=${1:-smoke}
shift || true
seconds=
case "${1:-}" in
  '' | *[!0-9]*) ;;
  *) seconds=$1; shift ;;
esac

case $mode in
  install) install_tool ;;
  replay)
    [ $# = 2 ] || die "it is: scripts/fuzz.sh replay TARGET FILE"
    [ -n "$(of "$1" 2)" ] || die "there is no target $1; there are: $(all | tr '\n' ' ')"
    build "$1"
    run "$1" "$2"
    ;;
  smoke | long | keep)
    if [ $# -gt 0 ]; then targets=("$@"); else mapfile -t targets < <(all); fi
    for target in "${targets[@]}"; do
      [ -n "$(of "$target" 2)" ] || die "there is no target $target; there are: $(all | tr '\n' ' ')"
    done
    build "${targets[@]}"
    ;;
  *) die "unknown argument $mode; it is: smoke, long, replay, keep or install" ;;
esac

case $mode in
  smoke)
    # Each run begins with what is checked in and nothing else, and draws the same: two runs do the same, as far as they
    # get. What is new to be found is for long runs.
    SEED=1
    FOUND=$(mktemp -d "${TMPDIR:-/tmp}/fuzz.XXXXXX")
    [ "$(nproc)" -ge 2 ] && at_once=2 || at_once=1
    failed=0 running=0
    for target in "${targets[@]}"; do
      fuzz "$target" "${seconds:-120}" 1 &
      running=$((running + 1))
      [ "$running" -lt "$at_once" ] || { wait -n || failed=1; running=$((running - 1)); }
    done
    while [ "$running" -gt 0 ]; do wait -n || failed=1; running=$((running - 1)); done
    [ "$failed" = 0 ] || exit 1
    rm -rf "$FOUND"
    ;;
  long)
    failed=0
    for target in "${targets[@]}"; do fuzz "$target" "${seconds:-3600}" "${FUZZ_WORKERS:-$(nproc)}" || failed=1; done
    exit "$failed"
    ;;
  keep)
    for target in "${targets[@]}"; do
      corpus="tests/fuzz/corpus/$target" least=$(mktemp -d "${TMPDIR:-/tmp}/fuzz.XXXXXX")
      mkdir -p "$corpus" "$FOUND/$target"
      run "$target" -merge=1 -max_len=1024 "$least" "$FOUND/$target" >/dev/null 2>&1
      # Those of before, which have names, stay; of the others the largest reach most.
      find "$corpus" -type f -name 'found-*' -delete
      left=$((KEPT_BYTES - $(find "$corpus" -type f -printf '%s\n' | awk '{ all += $1 } END { print all + 0 }')))
      while read -r size input; do
        [ "$size" -le "$left" ] || continue
        left=$((left - size))
        cp "$input" "$corpus/found-$(sha1sum <"$input" | cut -c1-12)"
      done < <(find "$least" -type f -printf '%s %p\n' | sort -rn | awk -v most="$KEPT" 'NR <= most')
      rm -rf "$least"
      say "$target keeps $(find "$corpus" -type f | wc -l) inputs"
    done
    ;;
esac
