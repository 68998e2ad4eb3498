#!/usr/bin/env bash
# Makes a book of docs/ in DIR (the only argument): HTML that needs no server. Where mdBook is says
# scripts/cargo_tool.sh, which builds it where it is not.
set -euo pipefail
cd "$(dirname "$0")/.."
MDBOOK=0.5.4
say() { printf 'docs: %s\n' "$*"; }
die() { printf 'docs: error: %s\n' "$*" >&2; exit 1; }
[ "$#" = 1 ] || die "it is: scripts/docs.sh DIR"
mkdir -p "$1"
out=$(cd "$1" && pwd)

mdbook=$(scripts/cargo_tool.sh mdbook "$MDBOOK" --no-default-features --features search)

# A copy: what is not part of the book has no link in it, only its path.
book=$(mktemp -d)
trap 'rm -rf "$book"' EXIT
cp -r docs/. "$book"
python3 - "$book" <<'PY'
import os, re, sys

book = sys.argv[1]
for folder, _, names in os.walk(book):
    for name in names:
        if not name.endswith(".md"):
            continue
        page = os.path.join(folder, name)

        def inside(link):
            text, target = link.group(1), link.group(2)
            if "://" in target or target.startswith("#"):
                return link.group(0)
            path = os.path.normpath(os.path.join(folder, target.split("#")[0]))
            if path.startswith(book + os.sep):
                return link.group(0)
            shown = os.path.normpath(os.path.join("docs", os.path.relpath(path, book)))
            return text if text.strip("`") == shown else f"{text} (`{shown}`)"

        with open(page, encoding="utf-8") as file:
            lines = file.read().split("\n")
        code = False
        for at, line in enumerate(lines):
            if line.lstrip().startswith("```"):
                code = not code
            elif not code:
                lines[at] = re.sub(r"\[([^\]]*)\]\(([^)]+)\)", inside, line)
        with open(page, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
PY
"$mdbook" build --dest-dir "$out" "$book"
rm -f "$out/book.toml"
say "the book is $out/index.html"
