#!/usr/bin/env python3
"""Runs `cargo build ARGS` and shows how far it is: one line on a terminal, else one every half a minute. What the
compiler has to say of our own code is shown as it is. V=1 shows cargo's own lines instead.

  scripts/build.py --locked --release -p robustd --bins
"""
import json
import os
import re
import subprocess
import sys
import threading
import time

# What cargo says of its progress; everything else on its standard error is for people.
PROGRESS = re.compile(
    r"\s*(Compiling|Fresh|Finished|Downloading|Downloaded|Updating|Locking|Adding|Checking|Building|Blocking|Dirty) (\S+)?"
)


def crates(cargo, args):
    """How many crates the build has; 0 if that cannot be said."""
    packages = [word for flag, word in zip(args, args[1:]) if flag == "-p"]
    chosen = [word for package in packages for word in ("-p", package)]
    command = [cargo, "tree", "--locked", "--prefix", "none", "-e", "normal,build", *chosen]
    tree = subprocess.run(command, capture_output=True, text=True, check=False)
    return len({tuple(line.split()[:2]) for line in tree.stdout.splitlines() if line.strip()})


class Shown:
    """The line that says how far it is."""

    def __init__(self, total):
        self.total = total
        self.built = set()
        self.latest = ""
        self.began = self.told = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.lock = threading.Lock()

    def line(self):
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        of = f" of {self.total}" if len(self.built) < self.total else ""
        return f"build: {len(self.built)}{of} crates, {minutes}m{seconds:02}s {self.latest}"

    def show(self):
        with self.lock:
            if self.terminal:
                sys.stderr.write(f"\r\x1b[K{self.line()[:79]}")
            elif time.monotonic() - self.told >= 30:
                self.told = time.monotonic()
                sys.stderr.write(self.line() + "\n")
            sys.stderr.flush()

    def say(self, text):
        with self.lock:
            if self.terminal:
                sys.stderr.write("\r\x1b[K")
            sys.stderr.write(text)
            sys.stderr.flush()


def hear(stderr, shown):
    for line in stderr:
        progress = PROGRESS.match(re.sub(r"\x1b\[[0-9;]*m", "", line))
        if progress is None:
            shown.say(line)
        elif progress.group(1) in ("Compiling", "Downloading"):
            shown.latest = progress.group(2) or ""
            shown.show()


def main():
    cargo, args = os.environ.get("CARGO", "cargo"), sys.argv[1:]
    if os.environ.get("V"):
        os.execvp(cargo, [cargo, "build", *args])
    shown = Shown(crates(cargo, args))
    color = ["--color", "always"] if shown.terminal else []
    command = [cargo, "build", "--message-format=json-render-diagnostics", *color, *args]
    build = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ears = threading.Thread(target=hear, args=(build.stderr, shown))
    ears.start()
    for line in build.stdout:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        kinds = message.get("target", {}).get("kind", [])
        if message.get("reason") == "compiler-artifact" and "custom-build" not in kinds:
            shown.built.add(message["package_id"])
            shown.show()
    ears.join()
    code = build.wait()
    shown.latest = "done" if code == 0 else "failed, the reason is above"
    shown.say(shown.line() + "\n")
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
