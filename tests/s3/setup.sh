#!/usr/bin/env bash
# Prints the python of a virtual environment in DIR (first argument) that has moto's S3 server; makes it the
# first time. Fails, with the reason on standard error, where it cannot be had.
set -euo pipefail
version=5.1.22
dir=$1/moto-$version
mkdir -p "$1"
exec 9>"$1/moto.lock"
flock 9
if [ ! -e "$dir/complete" ]; then
  rm -rf "$dir"
  echo "installing moto $version (an S3 server for tests) into $dir" >&2
  python3 -m venv --without-pip "$dir" >&2
  python3 -m pip --python "$dir/bin/python" install --quiet --disable-pip-version-check "moto[s3,server]==$version" >&2
  touch "$dir/complete"
fi
echo "$dir/bin/python"
