#!/usr/bin/env bash
# Writes manual pages and shell completions of the programs in $1 below $2, laid out as below /usr/share.
set -euo pipefail
bin=$1 share=$2
man=$share/man/man1
rm -rf "$man"
mkdir -p "$man" "$share"/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
"$bin/robustctl" man --dir "$man"
"$bin/robustd" man >"$man/robustd.1"
for program in robustctl robustd; do
  "$bin/$program" completions bash >"$share/bash-completion/completions/$program"
  "$bin/$program" completions zsh >"$share/zsh/site-functions/_$program"
  "$bin/$program" completions fish >"$share/fish/vendor_completions.d/$program.fish"
done
echo "$(find "$man" -name '*.1' | wc -l) manual pages and the completions of bash, zsh and fish are in $share"
