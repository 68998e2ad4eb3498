#!/usr/bin/env bash
# Says which tests did not run, from what they left in FOLDER (tests/needs): a file for each, with a line
# KIND, TEST, WHAT and REMEDY, tabs between them. Fails where CI is set and a test could not run here.
#   scripts/skips.sh FOLDER
set -euo pipefail
[ "$#" = 1 ] && [ -d "$1" ] || { echo "skips: error: it is: scripts/skips.sh FOLDER" >&2; exit 1; }

# of KIND: its lines, each of them once.
of() { find "$1" -type f -exec cat {} + | sort -u | awk -F '\t' -v kind="$2" '$1 == kind'; }
tell() { printf '%s\n' "$1" | awk -F '\t' '{ printf "  %s\n      %s\n      %s\n", $2, $3, $4 }'; }
count() { printf '%s\n' "$1" | cut -f2 | sort -u | wc -l; }

skips=$(of "$1" skip)
elsewhere=$(of "$1" elsewhere)
if [ -n "$elsewhere" ]; then
  echo "tests: $(count "$elsewhere") with parts that have nothing to test in this run, and where they have:"
  tell "$elsewhere"
fi
if [ -z "$skips" ]; then
  echo "tests: none was skipped for want of something"
  exit 0
fi
echo "tests: $(count "$skips") did not run here, or not all of it; what is missing, and how to get it:"
tell "$skips"
case "${CI:-}" in
  "" | 0 | false) ;;
  *) echo "tests: error: CI is set ($CI), so a test that does not run is a failure" >&2; exit 1 ;;
esac
