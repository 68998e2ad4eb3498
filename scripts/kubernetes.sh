#!/usr/bin/env bash
# Builds Kubernetes' API server, controller manager and scheduler from Debian's source package, with Debian's Go, for the
# tests that apply our manifests to a real control plane (tests/kubernetes): into
# ${ROBUST_CACHE:-~/.cache/robust}/kubernetes-VERSION, nothing is installed. A second run does nothing.
#   scripts/kubernetes.sh
# Debian has no packages of these programs. Some 115 MB are downloaded, 2 GB are needed while it is built, and 250 MB lie
# there afterwards; it takes one core five minutes. Removing the folder undoes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

VERSION=1.20.2   # of bookworm; tests/kubernetes/src/programs.rs names it as well
MIRROR=http://deb.debian.org/debian
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
NEEDED_MB=2500
PROGRAMS="kube-apiserver kube-controller-manager kube-scheduler"
# FILE PATH-ON-A-MIRROR: Kubernetes' source, a Go of its time, and the one library of it that faults with that Go
# (reflect2 1.0.1: the API server dies at the first object of its own kinds).
FILES="kubernetes.tar.gz pool/main/k/kubernetes/kubernetes_1.20.5+really1.20.2.orig.tar.gz
go.deb pool/main/g/golang-1.19/golang-1.19-go_1.19.8-2_amd64.deb
go-src.deb pool/main/g/golang-1.19/golang-1.19-src_1.19.8-2_all.deb
reflect2.deb pool/main/g/golang-github-modern-go-reflect2/golang-github-modern-go-reflect2-dev_1.0.2-2_all.deb"
# By hash: whatever a mirror sends, only what was looked at is built.
SUMS="b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc  kubernetes.tar.gz
545123039b6c79e75cf2d86528781a825424cf33ce9d3f4513d772d7144cd531  go.deb
2dfa82fe4f08f4e0193c532e561af4c91871f5235608f04f2bb8d57bb288df5a  go-src.deb
af150a5172cf4c19bb321a53e67103e7fb18d07c1baa1e816a235155265d3948  reflect2.deb"
say() { printf 'kubernetes: %s\n' "$*"; }
die() { printf 'kubernetes: error: %s\n' "$*" >&2; exit 1; }
[ "$#" = 0 ] || die "unknown argument $1; it is: scripts/kubernetes.sh"

# The mark is written last.
home="$CACHE/kubernetes-$VERSION"
complete() {
  [ "$(cat "$home/.complete" 2>/dev/null)" = "$SUMS" ] || return 1
  for program in $PROGRAMS; do [ -x "$home/$program" ] || return 1; done
}
complete && exit 0

# --- what must be there ------------------------------------------------------------------------
[ "$(uname -sm)" = "Linux x86_64" ] || die "the pinned Go is for Linux on x86_64, and this is $(uname -sm)"
for tool in curl dpkg-deb make tar; do
  command -v "$tool" >/dev/null 2>&1 || die "no $tool here, which fetches, unpacks or builds Debian's source of Kubernetes; install it"
done

mkdir -p "$CACHE"
CACHE=$(cd "$CACHE" && pwd)   # the build goes elsewhere
home="$CACHE/kubernetes-$VERSION"
exec 9>"$CACHE/.kubernetes.lock"
flock -n 9 || { say "another run builds it; waiting for it"; flock 9; }
! complete || exit 0

# --- the source, and a Go ----------------------------------------------------------------------
tmp="$CACHE/.kubernetes.tmp"
# Go makes the files of its own cache read-only.
trap 'chmod -R u+w "$tmp" 2>/dev/null || true; rm -rf "$tmp"' EXIT
[ ! -e "$tmp" ] || { chmod -R u+w "$tmp"; rm -rf "$tmp"; }
mkdir "$tmp"
room=$(df -Pm "$CACHE" | awk 'NR == 2 { print $4 }')
[ "$room" -ge "$NEEDED_MB" ] || die "$CACHE has room for $room MB and $NEEDED_MB are needed while it is built; set ROBUST_CACHE to a larger disk"

say "fetching Debian's source of Kubernetes $VERSION and a Go (115 MB, once)"
while read -r file path; do
  curl -fsSL --retry 2 -o "$tmp/$file" "$MIRROR/$path" \
    || die "$MIRROR/$path could not be fetched (the reason is above); is Debian's archive reachable?"
done <<<"$FILES"
(cd "$tmp" && sha256sum --quiet --check <<<"$SUMS") || die "what was fetched is not what is pinned; look at $MIRROR before anything else"
for package in go go-src reflect2; do
  dpkg-deb --extract "$tmp/$package.deb" "$tmp/root" || die "$package.deb could not be unpacked (the reason is above)"
done
source="$tmp/source"
mkdir "$source"
tar -xzf "$tmp/kubernetes.tar.gz" -C "$source" --strip-components=1
library=github.com/modern-go/reflect2
rm -f "$source/vendor/$library"/*.go "$source/vendor/$library"/*.s
cp "$tmp/root/usr/share/gocode/src/$library"/*.go "$tmp/root/usr/share/gocode/src/$library"/*.s "$source/vendor/$library/"

# --- the programs ------------------------------------------------------------------------------
# The build copies what it has built with rsync, of which it asks no more than cp does.
mkdir "$tmp/tools"
printf '#!/bin/sh\nshift\nexec cp -p "$@"\n' > "$tmp/tools/rsync"
chmod +x "$tmp/tools/rsync"
cores=$(nproc)
export PATH="$tmp/tools:$tmp/root/usr/lib/go-1.19/bin:$PATH"
# Its caches lie in HOME, and all that it needs is there: it asks no proxy.
export HOME="$tmp/home" GOTMPDIR="$tmp" CGO_ENABLED=0 GOFLAGS="-p=$cores" GOPROXY=off
export KUBE_GIT_VERSION="v$VERSION" KUBE_GIT_COMMIT=debian KUBE_GIT_TREE_STATE=archive KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20
unset GOROOT GOPATH GOCACHE
mkdir "$HOME" "$tmp/out"
log="$CACHE/kubernetes-build.log"
say "building it on $cores cores, which is five minutes' work of one; what it says goes to $log"
# The one source file that is generated and not in the package.
(cd "$source" && nice -n 10 make gen_openapi) > "$log" 2>&1 || die "its source could not be completed; $log says why"
flags="-s -w"
for package in component-base/version client-go/pkg/version; do
  package="k8s.io/kubernetes/vendor/k8s.io/$package"
  flags="$flags -X $package.gitVersion=v$VERSION -X $package.gitMajor=1 -X $package.gitMinor=20 -X $package.gitTreeState=archive"
done
# `make` has laid its tree there as Go wants it.
export GO111MODULE=off GOPATH="$source/_output/local/go"
for program in $PROGRAMS; do
  say "building $program"
  (cd "$GOPATH/src/k8s.io/kubernetes" && nice -n 10 go build -ldflags "$flags" -o "$tmp/out/" "k8s.io/kubernetes/cmd/$program") >> "$log" 2>&1 \
    || die "$program could not be built; $log says why"
done
mkdir -p "$home"
rm -f "$home/.complete"   # first: from here on it is no longer whole
for program in $PROGRAMS; do mv -f "$tmp/out/$program" "$home/"; done
printf '%s' "$SUMS" > "$home/.complete"
rm -f "$log"
say "Kubernetes' control plane is in $home"
