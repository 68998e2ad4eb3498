#!/usr/bin/env bash
# Runs cargo-deny with the words that are given, such as `check licenses`. scripts/cargo_tool.sh
# says where it is, and builds it where it is not.
set -euo pipefail
cd "$(dirname "$0")/.."
DENY=0.20.2
die() { printf 'deny: error: %s\n' "$*" >&2; exit 1; }
[ "$#" -gt 0 ] || die "it is: scripts/deny.sh WORDS, such as: scripts/deny.sh check licenses bans sources"

deny=$(CARGO_PROFILE_DEV_DEBUG=none scripts/cargo_tool.sh cargo-deny "$DENY" --debug)
exec "$deny" "$@"
