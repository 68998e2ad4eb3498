#!/usr/bin/env bash
# Tries the packages of scripts/dist.sh in OUT (first argument) on a plain Debian in a chroot of its own: unpacks or installs
# them, runs the test job to its end. Root and debootstrap are needed.
#   scripts/dist_test.sh target/dist [SUITE]      SUITE: bookworm, unless it is said
set -euo pipefail
export LC_ALL=C.UTF-8
say() { printf 'dist: %s\n' "$*"; }
die() { printf 'dist: error: %s\n' "$*" >&2; exit 1; }
[ "$#" -ge 1 ] || die "it is: scripts/dist_test.sh OUT [SUITE]"
out=$(cd "$1" && pwd)
suite=${2:-bookworm}
[ "$(id -u)" = 0 ] || die "a chroot needs root"
command -v debootstrap >/dev/null || die "debootstrap is missing; have root run: apt-get install debootstrap"
# From where this machine has its own packages.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | awk -v s="$suite" '$2 == s { print $1; exit }')
[ -n "$mirror" ] || die "apt knows no mirror with $suite"

plain=$(mktemp -d "${TMPDIR:-/tmp}/robust-dist.XXXXXX")
mounted=()
clean() {
  for at in "${mounted[@]}"; do umount -l "$at" 2>/dev/null || true; done
  rm -rf --one-file-system "$plain"
}
trap clean EXIT
say "making a plain $suite"
debootstrap --variant=minbase "$suite" "$plain" "$mirror" >"$plain.log" 2>&1 || { tail -n 5 "$plain.log" >&2; die "debootstrap failed"; }
rm -f "$plain.log"
mount --bind /proc "$plain/proc"; mounted+=("$plain/proc")
mkdir -p "$plain/dev/shm"
mount -t tmpfs tmpfs "$plain/dev/shm"; mounted+=("$plain/dev/shm")

# within COMMAND..: in the plain system, with nothing of this one's environment.
within() { chroot "$plain" env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }

job() {
  local programs=$1 share=$2
  within "$programs/robustctl" --version
  say "the test job, with the programs in $programs"
  within "$programs/robustd" --job "$share/fixtures/jobs/test.toml" --state-dir /tmp/state --steps 3 --fresh | tail -n 2
}

cp "$out"/robustrl-*-linux.tar.gz "$plain/tmp/"
within sh -c 'cd /opt && tar -xzf /tmp/robustrl-*-linux.tar.gz && mv robustrl-* robustrl'
job /opt/robustrl/bin /opt/robustrl/share/robustrl
rm -rf "$plain/opt/robustrl" "$plain/tmp/state" "$plain"/tmp/robustrl-*

cp "$out"/robustrl_*.deb "$plain/tmp/robustrl.deb"
# The mirror's certificates and keys are those of this machine's apt.
cp -r /etc/apt/. "$plain/etc/apt/"
[ ! -d /usr/share/keyrings ] || cp -rn /usr/share/keyrings/. "$plain/usr/share/keyrings/"
cp /etc/resolv.conf /etc/hosts "$plain/etc/" 2>/dev/null || true
within apt-get update -qq
within env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends /tmp/robustrl.deb >/dev/null
job /usr/bin /usr/share/robustrl
say "both packages run on a plain $suite"
