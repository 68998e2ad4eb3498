"""Starts a real engine on a free port in a session of its own, and ends all of it."""
import contextlib
import http.client
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

START_S = 600


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port, path):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        link.request("GET", path)
        return link.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        link.close()


def descendants(pid):
    """The process and all below it, with their names."""
    out, queue = {}, [pid]
    while queue:
        one = queue.pop()
        with contextlib.suppress(OSError):
            out[one] = pathlib.Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            for task in pathlib.Path(f"/proc/{one}/task").iterdir():
                queue += map(int, (task / "children").read_text().split())
    return out


def mapped(pids):
    """The files in shared memory that these processes map; a killed engine leaves them."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
            found |= set(re.findall(r"(/dev/shm/(?:psm|sglang)_\S+)$", maps, re.MULTILINE))
    return found


class Engine:
    """A running engine: `port`, `pid` of its leader."""

    def __init__(self, argv, env, ready, log):
        self.argv, self.ready, self.log = argv, ready, log
        self.env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "PYTHONUNBUFFERED": "1"} | env

    def __enter__(self):
        self.port = free_port()
        argv = [a.replace("{port}", str(self.port)) for a in self.argv]
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(argv, env=self.env, stdout=log, stderr=log, start_new_session=True)
        self.pid = self.child.pid
        deadline = time.monotonic() + START_S
        while not answers(self.port, self.ready):
            if self.child.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                tail = pathlib.Path(self.log).read_text(errors="replace").splitlines()[-15:]
                raise SystemExit("the engine did not start; the end of its log:\n" + "\n".join(tail))
            time.sleep(0.5)
        self.shared = mapped(descendants(self.pid))
        return self

    def process(self, name):
        """The one process of the engine whose command line has the name."""
        found = [pid for pid, line in descendants(self.pid).items() if name in line]
        if len(found) != 1:
            raise RuntimeError(f"{len(found)} processes named {name} in {descendants(self.pid)}")
        return found[0]

    def __exit__(self, *_):
        below = descendants(self.pid)
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(20)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        for pid, line in below.items():
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip() == line:
                    os.kill(pid, signal.SIGKILL)
        self.child.wait()
        for path in getattr(self, "shared", ()):
            pathlib.Path(path).unlink(missing_ok=True)
