#!/usr/bin/env bash
# Fetches Debian's etcd and etcdctl for the tests that start real members of etcd (tests/etcd): into
# ${ROBUST_CACHE:-~/.cache/robust}/etcd-VERSION, nothing is installed. A second run does nothing.
#   scripts/etcd.sh
# Some 13 MB are downloaded and 38 MB lie there afterwards; removing the folder undoes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

VERSION=3.4.23-4+b4   # of bookworm; tests/etcd/src/lib.rs names it as well
POOL=http://deb.debian.org/debian/pool/main/e/etcd
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
NEEDED_MB=100
# By hash: whatever a mirror sends, only the packages that were looked at are unpacked.
SUMS="3a9445d4560ad6de1c375756b2a17d97713df44cbd20a658c871fe108af7ef5d  etcd-server.deb
db3a484d5d924b50bf71f459ee544ecd7b11c25dc2f6becc0c50352d67299cc8  etcd-client.deb"
say() { printf 'etcd: %s\n' "$*"; }
die() { printf 'etcd: error: %s\n' "$*" >&2; exit 1; }
[ "$#" = 0 ] || die "unknown argument $1; it is: scripts/etcd.sh"

# The mark is written last.
home="$CACHE/etcd-$VERSION"
complete() { [ "$(cat "$home/.complete" 2>/dev/null)" = "$SUMS" ] && [ -x "$home/etcd" ] && [ -x "$home/etcdctl" ]; }
complete && exit 0

# --- what must be there ------------------------------------------------------------------------
[ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned packages are for Linux on x86_64, and this is $(uname -sm)"
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null 2>&1 && continue
  # Laid there by hand, without a mark.
  [ -x "$home/etcd" ] && [ -x "$home/etcdctl" ] && exit 0
  die "no $tool here to fetch or unpack Debian's packages with; lay etcd and etcdctl 3.4 or newer into $home"
done

mkdir -p "$CACHE"
exec 9>"$CACHE/.etcd.lock"
flock -n 9 || { say "another run fetches it; waiting for it"; flock 9; }
! complete || exit 0

# --- the packages ------------------------------------------------------------------------------
tmp="$CACHE/.etcd.tmp"
trap 'rm -rf "$tmp"' EXIT
rm -rf "$tmp"
mkdir "$tmp"
room=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
[ "$room" -ge "$NEEDED_MB" ] || die "$CACHE has room for $room MB and $NEEDED_MB are needed while it is fetched; set ROBUST_CACHE to a larger disk"

say "fetching Debian's etcd $VERSION (13 MB, once) into $home"
# fetch PACKAGE: as apt finds it; where it has no lists, or those of another suite, from Debian's pool.
fetch() {
  (cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "$1=$VERSION" 2>/dev/null && mv "$1"_*.deb "$1.deb") && return 0
  command -v curl >/dev/null 2>&1 && curl -fsSL --retry 2 -o "$tmp/$1.deb" "$POOL/$1_${VERSION}_amd64.deb"
}
for package in etcd-server etcd-client; do
  fetch "$package" || die "$package $VERSION could not be fetched; are Debian's packages reachable (apt-get update)?"
done
(cd "$tmp" && sha256sum --quiet --check <<<"$SUMS") || die "what was fetched is not what is pinned; look at $POOL before anything else"
for package in etcd-server etcd-client; do
  dpkg-deb --extract "$tmp/$package.deb" "$tmp/root" || die "$package could not be unpacked (the reason is above)"
done
mkdir -p "$home"
rm -f "$home/.complete"   # first: from here on it is no longer whole
mv -f "$tmp/root/usr/bin/etcd" "$tmp/root/usr/bin/etcdctl" "$home/"
printf '%s' "$SUMS" > "$home/.complete"
say "etcd is $home/etcd"
