#!/usr/bin/env bash
# Fetches Debian's Slurm for the tests that run real jobs on it (tests/slurm): into ${ROBUST_CACHE:-~/.cache/robust}/slurm-VERSION,
# nothing is installed. A second run does nothing.
#   scripts/slurm.sh
# Some 3 MB are downloaded and 14 MB lie there afterwards; removing the folder undoes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

VERSION=22.05.8-4+deb12u3   # of bookworm; tests/slurm/src/lib.rs names it as well
POOL=http://deb.debian.org/debian/pool/main
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
NEEDED_MB=50
# NAME=VERSION FOLDER-OF-THE-POOL: Slurm's, and the two libraries that its daemons want beside what every Debian has.
PACKAGES="slurmctld=$VERSION s/slurm-wlm
slurmd=$VERSION s/slurm-wlm
slurm-client=$VERSION s/slurm-wlm
slurm-wlm-basic-plugins=$VERSION s/slurm-wlm
libhwloc15=2.9.0-1 h/hwloc
libnuma1=2.0.16-1 n/numactl"
# By hash: whatever a mirror sends, only the packages that were looked at are unpacked.
SUMS="52322632ea071bcbdbed2f3dd16462760c9444198bc91bba507e6bf97ae8c2b2  slurmctld.deb
c88bf805e9770505eb08c78cbf09e9f09ce7eb2bd034f05f89965a2d658def0d  slurmd.deb
da1f62530f6bd2ded29b1db38db6875d544952c6ce02505ffc3e812506dce856  slurm-client.deb
7aa42186e5a3ca78d14832514ed6ab3499ca95d5d7617a03a1dac86bda109a8e  slurm-wlm-basic-plugins.deb
4e7194b5d9adbb1a7d11a9501a4be4a4fa22876b69c73b7998056f552962c0e4  libhwloc15.deb
639e1ab6bd66ead40db8a22c332d7199679fa22db261cac34444eb8eb4c17dda  libnuma1.deb"
say() { printf 'slurm: %s\n' "$*"; }
die() { printf 'slurm: error: %s\n' "$*" >&2; exit 1; }
[ "$#" = 0 ] || die "unknown argument $1; it is: scripts/slurm.sh"

# The mark is written last.
home="$CACHE/slurm-$VERSION"
complete() { [ "$(cat "$home/.complete" 2>/dev/null)" = "$SUMS" ] && [ -x "$home/usr/sbin/slurmctld-wlm" ]; }
complete && exit 0

# --- what must be there ------------------------------------------------------------------------
[ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned packages are for Linux on x86_64, and this is $(uname -sm)"
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null 2>&1 || die "no $tool here to fetch or unpack Debian's packages with"
done

mkdir -p "$CACHE"
exec 9>"$CACHE/.slurm.lock"
flock -n 9 || { say "another run fetches it; waiting for it"; flock 9; }
! complete || exit 0

# --- the packages ------------------------------------------------------------------------------
tmp="$CACHE/.slurm.tmp"
trap 'rm -rf "$tmp"' EXIT
rm -rf "$tmp"
mkdir "$tmp"
room=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
[ "$room" -ge "$NEEDED_MB" ] || die "$CACHE has room for $room MB and $NEEDED_MB are needed while it is fetched; set ROBUST_CACHE to a larger disk"

say "fetching Debian's Slurm $VERSION (3 MB, once) into $home"
# fetch NAME=VERSION FOLDER: as apt finds it; where it has no lists, or those of another suite, from Debian's pool.
fetch() {
  local name=${1%=*} version=${1#*=}
  (cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "$1" 2>/dev/null && mv "$name"_*.deb "$name.deb") && return 0
  command -v curl >/dev/null 2>&1 && curl -fsSL --retry 2 -o "$tmp/$name.deb" "$POOL/$2/${name}_${version}_amd64.deb"
}
while read -r package folder; do
  fetch "$package" "$folder" || die "$package could not be fetched; are Debian's packages reachable (apt-get update)?"
done <<<"$PACKAGES"
(cd "$tmp" && sha256sum --quiet --check <<<"$SUMS") || die "what was fetched is not what is pinned; look at $POOL before anything else"
mkdir -p "$home"
rm -f "$home/.complete"   # first: from here on it is no longer whole
while read -r package _; do
  dpkg-deb --extract "$tmp/${package%=*}.deb" "$tmp/root" || die "$package could not be unpacked (the reason is above)"
done <<<"$PACKAGES"
rm -rf "$home/usr"
mv "$tmp/root/usr" "$home/"
rm -rf "$home/usr/share"

libraries="$home/usr/lib/x86_64-linux-gnu"
for program in sbin/slurmctld-wlm sbin/slurmd-wlm sbin/slurmstepd-wlm bin/sbatch bin/srun bin/scontrol; do
  missing=$(LD_LIBRARY_PATH="$libraries:$libraries/slurm-wlm" ldd "$home/usr/$program" | awk '/not found/ { print $1 }' | paste -sd' ')
  [ -z "$missing" ] || die "$program wants $missing, which this machine does not have"
done
printf '%s' "$SUMS" > "$home/.complete"
say "Slurm is in $home"
