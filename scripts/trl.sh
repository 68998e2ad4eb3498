#!/usr/bin/env bash
# Sets up the python that TRL's asynchronous GRPO trainer runs with on a processor: TRL and what it needs, in a venv of
# ${ROBUST_CACHE:-~/.cache/robust} that uses the torch and transformers of scripts/torch.sh's, which is set up first.
# Versions are pinned with hashes. A second run does nothing.
#   scripts/trl.sh                  sets it up
#   scripts/trl.sh --run COMMAND    runs a command with TRL_PYTHON set to its python; nothing is set up
# Our own package is not installed there: whoever needs it sets PYTHONPATH to python/src of a checkout.
# Some 90 MB are downloaded and 350 MB lie there afterwards; removing the folder undoes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

FROM="$PWD/fixtures/python"
REQUIREMENTS="$FROM/requirements-trl.txt"
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
NEEDED_MB=800
say() { printf 'trl: %s\n' "$*"; }
die() { printf 'trl: error: %s\n' "$*" >&2; exit 1; }

TRL=$(sed -n 's/^trl==\([^ ]*\).*/\1/p' "$REQUIREMENTS")
TORCH=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' "$FROM/requirements-torch.txt")
venv="$CACHE/trl-$TRL-py"
torch="$CACHE/torch-$TORCH-py"

# The venv is complete when its mark has the digest of what it was made from and the mark of the one it uses; the mark
# is written last.
made_from=$(sha256sum < "$REQUIREMENTS" | cut -d' ' -f1)
mark() { cat "$venv/.complete" 2>/dev/null || true; }
wanted() { printf '%s %s' "$made_from" "$(cat "$torch/.complete" 2>/dev/null || true)"; }
complete() { [ "$(mark)" = "$(wanted)" ] && "$venv/bin/python" -c '' 2>/dev/null; }

if [ "${1:-}" = --run ]; then
  shift
  [ "$#" -gt 0 ] || die "--run needs a command"
  [ -n "$(mark)" ] || die "there is no python with TRL in $venv; run scripts/trl.sh"
  complete || die "$venv was made from other versions than this checkout names; run scripts/trl.sh"
  export TRL_PYTHON="$venv/bin/python"
  exec "$@"
fi
[ "$#" = 0 ] || die "unknown argument $1; it is: scripts/trl.sh [--run COMMAND]"

scripts/torch.sh
complete && exit 0
unset PYTHONPATH PYTHONHOME   # what lies there would count as installed
PYTHON="${ROBUST_TORCH_PYTHON:-python3}"
"$PYTHON" -m pip --version >/dev/null 2>&1 || die "$PYTHON has no pip; install python3-pip"

exec 9>"$CACHE/.trl-$TRL-py.lock"
flock -n 9 || { say "another run sets it up; waiting for it"; flock 9; }
! complete || exit 0

tmp="$CACHE/.trl-$TRL-py.tmp"
trap 'rm -rf "$tmp"' EXIT
rm -f "$venv/.complete"   # first: from here on it is no longer whole
rm -rf "$venv" "$tmp"
mkdir "$tmp"
room=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
[ "$room" -ge "$NEEDED_MB" ] || die "$CACHE has room for $room MB and $NEEDED_MB are needed while it is set up; set ROBUST_CACHE to a larger disk"

"$PYTHON" -m venv --without-pip "$venv" || die "no venv could be made in $venv (python's reason is above)"
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$packages/torch.pth"
say "downloading TRL $TRL and what it needs (90 MB, once) into $venv"
TMPDIR="$tmp" "$PYTHON" -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
  --require-hashes -r "$REQUIREMENTS" \
  || die "pip could not install TRL $TRL and what goes with it (its reason is above); is a package index reachable?"
TRL_EXPERIMENTAL_SILENCE=1 "$venv/bin/python" -c 'from trl.experimental.async_grpo import AsyncGRPOTrainer' \
  || die "what was installed into $venv does not work (python's reason is above)"
wanted > "$venv/.complete"
say "python with TRL $TRL is $venv/bin/python"
