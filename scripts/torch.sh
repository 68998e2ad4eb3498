#!/usr/bin/env bash
# Sets up the python that trainers written with PyTorch run with on a processor: torch, of libtorch's version,
# and transformers, in a venv of ${ROBUST_CACHE:-~/.cache/robust}, versions pinned with hashes. A second run does
# nothing.
#   scripts/torch.sh                  sets it up
#   scripts/torch.sh --run COMMAND    runs a command with TORCH_PYTHON set to its python; nothing is set up
# Our own package is not installed there: whoever needs it sets PYTHONPATH to python/src of a checkout.
# Some 0.6 GB are downloaded and 1.1 GB lies there afterwards; removing the folder undoes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

FROM="$PWD/fixtures/python"
REQUIREMENTS="$FROM/requirements-torch.txt"
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
NEEDED_MB=2500
say() { printf 'torch: %s\n' "$*"; }
die() { printf 'torch: error: %s\n' "$*" >&2; exit 1; }

version() { sed -n "s/^$1==\([^ ]*\).*/\1/p" "$REQUIREMENTS"; }
TORCH=$(version torch)
venv="$CACHE/torch-$TORCH-py"

# The venv is complete when its mark has the python and the digest of what it was made from; the mark is
# written last.
made_from=$(cat "$REQUIREMENTS" "$FROM/cpu_only.py" | sha256sum | cut -d' ' -f1)
mark() { cat "$venv/.complete" 2>/dev/null || true; }

if [ "${1:-}" = --run ]; then
  shift
  [ "$#" -gt 0 ] || die "--run needs a command"
  case "$(mark)" in
    *" $made_from") ;;
    "") die "there is no python with torch in $venv; run scripts/torch.sh" ;;
    *) die "$venv was made from other versions than this checkout names; run scripts/torch.sh" ;;
  esac
  export TORCH_PYTHON="$venv/bin/python"
  exec "$@"
fi
[ "$#" = 0 ] || die "unknown argument $1; it is: scripts/torch.sh [--run COMMAND]"

# --- what must be there ------------------------------------------------------------------------
grep -qx "TORCH=$TORCH" scripts/setup.sh || die "$REQUIREMENTS has torch $TORCH, and scripts/setup.sh another libtorch; they must be the same"
[ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned wheels are for Linux on x86_64, and this is $(uname -sm)"
PYTHON="${ROBUST_TORCH_PYTHON:-python3}"
command -v "$PYTHON" >/dev/null 2>&1 || die "no $PYTHON on the PATH; install python3 (3.11 to 3.13), or set ROBUST_TORCH_PYTHON"
unset PYTHONPATH PYTHONHOME   # what lies there would count as installed
minor=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case "$minor" in
  3.11 | 3.12 | 3.13) ;;
  *) die "$PYTHON is Python $minor, and the pinned wheels are for 3.11 to 3.13; set ROBUST_TORCH_PYTHON to one of those" ;;
esac

# A venv is no more than a link to the python that it was made with, which may be gone.
complete() { [ "$(mark)" = "$minor $made_from" ] && "$venv/bin/python" -c '' 2>/dev/null; }
complete && exit 0

for tool in c++ nm; do
  command -v "$tool" >/dev/null 2>&1 || die "no $tool on the PATH, which torch is made one for the processor with; run scripts/setup.sh"
done
"$PYTHON" -m pip --version >/dev/null 2>&1 || die "$PYTHON has no pip; install python3-pip"

mkdir -p "$CACHE"
exec 9>"$CACHE/.torch-$TORCH-py.lock"
flock -n 9 || { say "another run sets it up; waiting for it"; flock 9; }
! complete || exit 0

# --- the venv ----------------------------------------------------------------------------------
tmp="$CACHE/.torch-$TORCH-py.tmp"
trap 'rm -rf "$tmp"' EXIT
rm -f "$venv/.complete"   # first: from here on it is no longer whole
rm -rf "$venv" "$tmp"
mkdir "$tmp"
room=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
[ "$room" -ge "$NEEDED_MB" ] || die "$CACHE has room for $room MB and $NEEDED_MB are needed while it is set up; set ROBUST_CACHE to a larger disk"

"$PYTHON" -m venv --without-pip "$venv" || die "no venv could be made in $venv (python's reason is above)"
say "downloading torch $TORCH, transformers $(version transformers) and what they need (600 MB, once) into $venv"
TMPDIR="$tmp" "$PYTHON" -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
  --require-hashes -r "$REQUIREMENTS" \
  || die "pip could not install torch $TORCH and what goes with it (its reason is above); is a package index reachable?"

say "making it one for the processor alone: CUDA's part of it would want 3 GB more"
packages="$venv/lib/python$minor/site-packages"
"$venv/bin/python" "$FROM/cpu_only.py" "$packages/torch" || die "torch $TORCH could not be made one for the processor (the reason is above)"
# One file, on the disk and in memory, where it is the same as libtorch's.
libtorch="$CACHE/libtorch-$TORCH-cpu/torch/lib/libtorch_cpu.so"
if cmp -s "$libtorch" "$packages/torch/lib/libtorch_cpu.so"; then
  ln -f "$libtorch" "$packages/torch/lib/libtorch_cpu.so" || say "it keeps its own libtorch_cpu.so, as no link could be made"
fi

"$venv/bin/python" -c 'import torch, transformers; assert not torch.cuda.is_available()' \
  || die "what was installed into $venv does not work (python's reason is above)"
printf '%s' "$minor $made_from" > "$venv/.complete"
say "python with torch $TORCH is $venv/bin/python"
