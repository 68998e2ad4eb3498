#!/usr/bin/env bash
# Writes to FILE (the only argument) what the programs are made of, as CycloneDX 1.6 in JSON: every crate that they need,
# those that only other systems would among them, and what the packages bring along that Cargo does not know. Where
# cargo-sbom is says scripts/cargo_tool.sh, which builds it where it is not.
set -euo pipefail
cd "$(dirname "$0")/.."
SBOM=0.10.0
say() { printf 'sbom: %s\n' "$*"; }
die() { printf 'sbom: error: %s\n' "$*" >&2; exit 1; }
[ "$#" = 1 ] || die "it is: scripts/sbom.sh FILE"

sbom=$(scripts/cargo_tool.sh cargo-sbom "$SBOM")
torch=$(sed -n 's/^TORCH=//p' scripts/setup.sh)
ucx=$(dpkg-query -W -f '${Version}' libucx0 2>/dev/null || true)
[ -n "$torch" ] && [ -n "$ucx" ] || die "the versions of libtorch and UCX are not known here; run scripts/setup.sh"
"$sbom" sbom --output-format cyclone_dx_json_1_6 | python3 -c '
import json, sys

bom = json.load(sys.stdin)
torch, ucx = sys.argv[1:]
for name, version, purl in (
    ("torch", torch, f"pkg:pypi/torch@{torch}"),
    ("libucx0", ucx, f"pkg:deb/debian/libucx0@{ucx}"),
):
    bom["components"].append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
json.dump(bom, sys.stdout, indent=1)
' "$torch" "$ucx" >"$1.unfinished"
mv "$1.unfinished" "$1"
say "$1: $(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["components"]))' "$1") components"
