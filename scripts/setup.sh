#!/usr/bin/env bash
# Installs what the build needs and is missing; says what and why; a second run does nothing.
#   UCX       system packages libucx-dev + pkg-config (or UCX_DIR=/path/to/ucx)
#   libtorch  2.11.0, CPU part of PyPI's wheels, in ${ROBUST_CACHE:-~/.cache/robust}
#             (or LIBTORCH=/path, which may be the folder of a python's own torch)
# With --tests also what the tests look for. Without it they are skipped, so what cannot be had is said and no
# error, unless CI is set:
#   ip and tc, tmux, strace, gdb, kill, curl   system packages iproute2, tmux, strace, gdb, procps, curl
#   promtool  the one program of the system package prometheus, in the cache (or PROMTOOL=/path)
#   moto      an S3 server, in the cache
#   etcd      Debian's etcd and etcdctl, in the cache
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8

TORCH=2.11.0
CACHE="${ROBUST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/robust}"
say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }
case "$*" in
  "") for_tests= ;;
  --tests) for_tests=yes ;;
  *) die "unknown argument $*; it is: scripts/setup.sh [--tests]" ;;
esac

# --- system packages ---------------------------------------------------------------------------
if [ "$(id -u)" = 0 ]; then as_root=(env); how=
elif command -v sudo >/dev/null 2>&1; then as_root=(sudo); how=" through sudo"
else as_root=(); fi

# packages WHY PACKAGE...: installs them. Where that does not work, `refused` says why and what to do.
packages() {
  local why=$1
  shift
  local by_hand="have root run: apt-get update && apt-get install -y --no-install-recommends $*; then run this again as yourself"
  if ! command -v apt-get >/dev/null 2>&1; then
    refused="no apt-get here; install these yourself: $*"
  elif [ "${#as_root[@]}" = 0 ]; then
    refused="$* must be installed, and this is neither root nor is there sudo; $by_hand"
  else
    say "installing $*$how ($why)"
    if ! "${as_root[@]}" apt-get update -qq; then
      refused="apt-get update$how did not work (its reason is above); $by_hand"
    elif ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; then
      refused="apt-get install$how did not work (its reason is above); $by_hand"
    else
      return 0
    fi
  fi
  return 1
}

missing=()
has_ucx() {
  [ -n "${UCX_DIR:-}" ] && [ -e "$UCX_DIR/include/ucp/api/ucp.h" ] && return 0
  command -v pkg-config >/dev/null && pkg-config --exists ucx
}
command -v cc >/dev/null 2>&1 || missing+=(gcc libc6-dev)
command -v c++ >/dev/null 2>&1 || missing+=(g++)
command -v pkg-config >/dev/null 2>&1 || missing+=(pkg-config)
command -v python3 >/dev/null 2>&1 || missing+=(python3 python3-pip)
has_ucx || missing+=(libucx-dev)
if [ "${#missing[@]}" -gt 0 ]; then
  packages "compiler, pkg-config and UCX are needed to build" "${missing[@]}" || die "$refused (UCX: openucx.org, or set UCX_DIR)"
fi

command -v cargo >/dev/null 2>&1 || die "no cargo on the PATH; install Rust 1.95 or newer (rustup.rs)"

# --- what tests look for -----------------------------------------------------------------------
lacks() {
  case "${CI:-}" in "" | 0 | false) say "$*; tests that need it will be skipped" ;; *) die "$*" ;; esac
}

# Of its package the one program is taken: installed, the package would start a server.
get_promtool() {
  command -v apt-get >/dev/null 2>&1 || { refused="no apt-get here to fetch promtool with; install Prometheus' promtool, or set PROMTOOL"; return 1; }
  say "fetching promtool (Debian's package prometheus, 20 MB) into $CACHE/tests"
  mkdir -p "$CACHE/tests"
  local tmp
  tmp=$(mktemp -d "$CACHE/tests/tmp.XXXXXX")
  fetch() { (cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root prometheus); }
  # Without lists of packages none is found.
  if { fetch 2>/dev/null || { [ "${#as_root[@]}" = 0 ] || "${as_root[@]}" apt-get update -qq; fetch; }; } \
    && dpkg-deb --fsys-tarfile "$tmp"/prometheus_*.deb | tar -x -C "$tmp" ./usr/bin/promtool; then
    mv "$tmp/usr/bin/promtool" "$CACHE/tests/promtool"
    rm -rf "$tmp"
  else
    rm -rf "$tmp"
    refused="promtool could not be fetched (the reason is above); install it, or set PROMTOOL"
    return 1
  fi
}

if [ -n "$for_tests" ]; then
  missing=()
  for tool in ip:iproute2 tc:iproute2 tmux:tmux strace:strace gdb:gdb kill:procps curl:curl; do
    PATH="$PATH:/usr/sbin:/sbin" type -P "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
  done
  if [ "${#missing[@]}" -gt 0 ]; then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    packages "tests look for them" "${missing[@]}" || lacks "$refused"
  fi
  if [ -z "${PROMTOOL:-}" ] && [ ! -x "$CACHE/tests/promtool" ] && ! type -P promtool >/dev/null; then
    get_promtool || lacks "$refused"
  fi
  tests/s3/setup.sh "$CACHE/tests" >/dev/null || lacks "moto's S3 server could not be installed (the reason is above)"
  scripts/etcd.sh || lacks "etcd could not be fetched (the reason is above)"
  scripts/slurm.sh || lacks "Slurm could not be fetched (the reason is above)"
fi

# --- libtorch ----------------------------------------------------------------------------------
# With it the build would take one libtorch, and robust-worker look for another when it runs.
[ -z "${LIBTORCH_USE_PYTORCH:-}" ] || die "LIBTORCH_USE_PYTORCH is set; unset it, and for python's own torch set
  LIBTORCH=\"\$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))')\""
if [ -n "${LIBTORCH:-}" ]; then
  [ -d "$LIBTORCH/include" ] && [ -d "$LIBTORCH/lib" ] || die "LIBTORCH=$LIBTORCH has no include/ and lib/"
  exit 0
fi

home="$CACHE/libtorch-$TORCH-cpu"
if [ ! -e "$home/torch/build-version" ]; then
  python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip; install python3-pip"
  mkdir -p "$CACHE"
  tmp=$(mktemp -d "$CACHE/tmp.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  say "downloading libtorch $TORCH (545 MB, once) into $CACHE"
  # By hash: whatever a mirror or an index sends, only the wheels that were looked at are unpacked.
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    -d "$tmp/wheels" -r fixtures/python/requirements-libtorch.txt \
    || die "pip could not download torch $TORCH (its reason is above); set LIBTORCH to an unpacked libtorch $TORCH instead"
  say "unpacking the CPU part (0.5 GB)"
  python3 - "$tmp/wheels" "$tmp/out" <<'PY'
import os, shutil, sys, zipfile
src, out = sys.argv[1:]
keep = ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libgomp.so.1")
for name in os.listdir(src):
    with zipfile.ZipFile(os.path.join(src, name)) as z:
        for i in z.infolist():
            p = i.filename
            if p.startswith("torch/include/") or p in keep or p.endswith(("libcudart.so.13", "libcupti.so.13")):
                z.extract(i, out)
PY
  rm -rf "$tmp/wheels"
  ln -s libtorch_cpu.so "$tmp/out/torch/lib/libtorch.so"
  rm -rf "$home"; mv "$tmp/out" "$home.new.$$"
  printf '%s' "$TORCH" > "$home.new.$$/torch/build-version"   # last: the mark of a complete install
  mv "$home.new.$$" "$home"
  say "libtorch is in $home"
fi
[ "$(readlink .libtorch 2>/dev/null)" = "$home" ] || { ln -sfn "$home" .libtorch; say "linked .libtorch -> $home"; }
