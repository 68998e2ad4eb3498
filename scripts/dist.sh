#!/usr/bin/env bash
# Packs the programs in DIR (first argument) into OUT (second): a tarball that runs where it is unpacked, a .deb, and a
# list of what they are made of (scripts/sbom.sh). Both packages bring libtorch's processor part along; the tarball UCX's
# too, without its modules for RDMA, for which the .deb takes the system's libucx0. robust-bench, which measures, is in neither.
#   scripts/dist.sh target/release target/dist
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C.UTF-8
say() { printf 'dist: %s\n' "$*"; }
die() { printf 'dist: error: %s\n' "$*" >&2; exit 1; }
[ "$#" = 2 ] || die "it is: scripts/dist.sh DIR-OF-PROGRAMS OUT"
bin=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
for tool in patchelf dpkg-deb; do
  command -v "$tool" >/dev/null || die "$tool is missing; have root run: apt-get install $tool"
done

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
name="robustrl-$version-$machine-linux"
torch=$(readlink -f "${LIBTORCH:-.libtorch/torch}")
stage=$(mktemp -d "$out/stage.XXXXXX")
trap 'rm -rf "$stage"' EXIT

# tree ROOT: programs, their libraries, manual pages, completions, jobs to try, the Python package.
tree() {
  local root=$1 libraries="$1/lib/robustrl" program
  mkdir -p "$root/bin" "$libraries" "$root/share/robustrl"
  for program in robustd robustctl robust-worker robust-shim robust-calc robust-weights; do
    install -m 755 "$bin/$program" "$root/bin/$program"
    strip "$root/bin/$program"
    patchelf --set-rpath '$ORIGIN/../lib/robustrl' "$root/bin/$program"
  done
  # libtorch_cpu.so looks for the CUDA runtime that it was linked with, which a processor never enters.
  for library in libtorch_cpu.so libc10.so libgomp.so.1; do
    install -m 644 "$torch/lib/$library" "$libraries/"
  done
  find -L "$torch/../nvidia" -name 'libcudart.so.13' -o -name 'libcupti.so.13' | while read -r library; do
    install -m 644 "$library" "$libraries/"
  done
  patchelf --set-rpath '$ORIGIN' "$libraries/libtorch_cpu.so"
  scripts/man.sh "$bin" "$root/share" >/dev/null
  cp -r fixtures python examples "$root/share/robustrl/"
  find "$root/share/robustrl" -name __pycache__ -prune -exec rm -rf {} +
  install -m 644 LICENSE README.md CHANGELOG.md "$root/share/robustrl/"
}

say "packing $name.tar.gz"
tree "$stage/$name"
for library in libucp.so.0 libucs.so.0 libuct.so.0 libucm.so.0 libnuma.so.1; do
  found=$(ldconfig -p | sed -n "s/.*$library .*=> //p" | head -n 1)
  [ -n "$found" ] || die "$library is not there; scripts/setup.sh installs it"
  install -m 644 "$found" "$stage/$name/lib/robustrl/"
  patchelf --set-rpath '$ORIGIN' "$stage/$name/lib/robustrl/$library"
done
tar -C "$stage" --owner=0 --group=0 --sort=name -czf "$out/$name.tar.gz" "$name"
rm -rf "${stage:?}/$name"

say "packing robustrl_${version}_amd64.deb"
tree "$stage/deb/usr"
mkdir -p "$stage/deb/DEBIAN" "$stage/deb/usr/share/doc/robustrl"
install -m 644 LICENSE "$stage/deb/usr/share/doc/robustrl/copyright"
# What it was linked with is the oldest that it runs with.
glibc=$(ldd --version | sed -n '1s/.* //p')
cat >"$stage/deb/DEBIAN/control" <<CONTROL
Package: robustrl
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: RobustRL maintainers <maintainers@robustrl.invalid>
Depends: libc6 (>= $glibc), libstdc++6, libgcc-s1, libucx0 (>= 1.13)
Suggests: gdb, python3
Installed-Size: $(du -sk "$stage/deb/usr" | cut -f1)
Section: science
Priority: optional
Description: keeps RL post-training jobs of LLMs running through faults
 A daemon that hosts trainers, inference engines and environments, detects which
 role failed, restarts only that one and reconnects it to the living; and the
 operators' console.
CONTROL
dpkg-deb --root-owner-group -Zzstd -z6 --build "$stage/deb" "$out/robustrl_${version}_$(dpkg --print-architecture).deb" >/dev/null
scripts/sbom.sh "$out/robustrl-$version.cdx.json"
ls -lh "$out"/*.tar.gz "$out"/*.deb
