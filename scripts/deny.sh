#!/usr/bin/env bash
# Runs cargo-deny with the words that are given, such as `check licenses`. It is taken from the path, else built once
# into ${ROBUST_CACHE:-~/.cache/robust}.
set -euo pipefail
cd "$(dirname "$0")/.."
DENY=0.20.2
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
say() { printf 'deny: %s\n' "$*"; }
die() { printf 'deny: error: %s\n' "$*" >&2; exit 1; }
[ "$#" -gt 0 ] || die "it is: scripts/deny.sh WORDS, such as: scripts/deny.sh check licenses bans sources"

deny=$(command -v cargo-deny || true)
if [ -z "$deny" ]; then
  deny="$CACHE/cargo-deny-$DENY/bin/cargo-deny"
  if ! [ -x "$deny" ]; then
    say "building cargo-deny $DENY into $CACHE (a few minutes, once)"
    CARGO_PROFILE_DEV_DEBUG=none CARGO_TARGET_DIR="$CACHE/cargo-deny-$DENY/target" cargo install --debug --quiet --locked --version "$DENY" \
      --root "$CACHE/cargo-deny-$DENY" cargo-deny || die "cargo-deny could not be built (its reason is above)"
    rm -rf "$CACHE/cargo-deny-$DENY/target"
  fi
fi
exec "$deny" "$@"
