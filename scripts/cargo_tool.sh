#!/usr/bin/env bash
# Prints where a tool is that cargo installs: scripts/cargo_tool.sh CRATE VERSION [WORDS FOR cargo install]. It is taken from
# the path, else built once into ${ROBUST_CACHE:-~/.cache/robust}. Its program has the name of the crate.
set -euo pipefail
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
# What is on stdout is the answer.
say() { printf 'cargo_tool: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
[ "$#" -ge 2 ] || die "it is: scripts/cargo_tool.sh CRATE VERSION [WORDS FOR cargo install]"
crate=$1
version=$2
shift 2

tool=$(command -v "$crate" || true)
if [ -z "$tool" ]; then
  root="$CACHE/$crate-$version"
  tool="$root/bin/$crate"
  if ! [ -x "$tool" ]; then
    say "building $crate $version into $CACHE (some minutes, once)"
    # Its own target folder: what builds the programs is not built again for it.
    CARGO_TARGET_DIR="$root/target" cargo install --quiet --locked "$@" --version "$version" --root "$root" "$crate" >&2 ||
      die "$crate could not be built (its reason is above)"
    rm -rf "$root/target"
  fi
fi
printf '%s\n' "$tool"
