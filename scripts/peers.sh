#!/usr/bin/env bash
# Sets up the python that scripts/bench_peers.py runs what moves bytes elsewhere with: nixl and mooncake's transfer
# engine, in a venv of ${ROBUST_CACHE:-~/.cache/robust}, versions pinned with hashes. A second run does nothing.
#   scripts/peers.sh                  sets it up
#   scripts/peers.sh --run COMMAND    runs a command with PEERS_PYTHON set to its python; nothing is set up
# Some 120 MB are downloaded and 450 MB lie there afterwards; removing the folder undoes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

REQUIREMENTS="$PWD/fixtures/python/requirements-peers.txt"
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
NEEDED_MB=900
say() { printf 'peers: %s\n' "$*"; }
die() { printf 'peers: error: %s\n' "$*" >&2; exit 1; }

venv="$CACHE/peers-py"

# The venv is complete when its mark has the python and the digest of what it was made from; the mark is
# written last.
made_from=$(sha256sum < "$REQUIREMENTS" | cut -d' ' -f1)
mark() { cat "$venv/.complete" 2>/dev/null || true; }

if [ "${1:-}" = --run ]; then
  shift
  [ "$#" -gt 0 ] || die "--run needs a command"
  case "$(mark)" in
    *" $made_from") ;;
    "") die "there is no python with the peers in $venv; run scripts/peers.sh" ;;
    *) die "$venv was made from other versions than this checkout names; run scripts/peers.sh" ;;
  esac
  export PEERS_PYTHON="$venv/bin/python"
  exec "$@"
fi
[ "$#" = 0 ] || die "unknown argument $1; it is: scripts/peers.sh [--run COMMAND]"

# --- what must be there ------------------------------------------------------------------------
[ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned wheels are for Linux on x86_64, and this is $(uname -sm)"
PYTHON="${ROBUST_PEERS_PYTHON:-python3}"
command -v "$PYTHON" >/dev/null 2>&1 || die "no $PYTHON on the PATH; install python3 (3.11 to 3.13), or set ROBUST_PEERS_PYTHON"
unset PYTHONPATH PYTHONHOME   # what lies there would count as installed
minor=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case "$minor" in
  3.11 | 3.12 | 3.13) ;;
  *) die "$PYTHON is Python $minor, and the pinned wheels are for 3.11 to 3.13; set ROBUST_PEERS_PYTHON to one of those" ;;
esac

# A venv is no more than a link to the python that it was made with, which may be gone.
complete() { [ "$(mark)" = "$minor $made_from" ] && "$venv/bin/python" -c '' 2>/dev/null; }
complete && exit 0

"$PYTHON" -m pip --version >/dev/null 2>&1 || die "$PYTHON has no pip; install python3-pip"

mkdir -p "$CACHE"
exec 9>"$CACHE/.peers-py.lock"
flock -n 9 || { say "another run sets it up; waiting for it"; flock 9; }
! complete || exit 0

# --- the venv ----------------------------------------------------------------------------------
tmp="$CACHE/.peers-py.tmp"
trap 'rm -rf "$tmp"' EXIT
rm -f "$venv/.complete"   # first: from here on it is no longer whole
rm -rf "$venv" "$tmp"
mkdir "$tmp"
room=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
[ "$room" -ge "$NEEDED_MB" ] || die "$CACHE has room for $room MB and $NEEDED_MB are needed while it is set up; set ROBUST_CACHE to a larger disk"

"$PYTHON" -m venv --without-pip "$venv" || die "no venv could be made in $venv (python's reason is above)"
say "downloading nixl and mooncake's transfer engine (120 MB, once) into $venv"
# Not what they say they need: that is PyTorch and CUDA, 6 GB, which nothing on a processor asks for.
TMPDIR="$tmp" "$PYTHON" -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
  --require-hashes -r "$REQUIREMENTS" \
  || die "pip could not install nixl and mooncake (its reason is above); is a package index reachable?"

printf '%s' "$minor $made_from" > "$venv/.complete"
say "python with the peers is $venv/bin/python"
