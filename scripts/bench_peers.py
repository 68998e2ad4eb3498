#!/usr/bin/env python3
"""Measures what others move between two processes of one host, beside our shared memory; adds it to weights.json.

    scripts/bench_peers.py BINARIES OUT.json [--rounds 5]

scripts/peers.sh sets the others up, if that was not done yet. One process reads 1 GiB, and 256 MiB, of another one's
memory; all is in GB/s of the transfer alone:
    nixl_cma_*              nixl as it comes, which is CMA on one host
    nixl_tcp_*              nixl over TCP; nixl_tcp_1m_*: in segments of 1 MiB, which can be quicker
    mooncake_tcp_*          mooncake's transfer engine over TCP
    ours_shm_*              `robust-weights pull` over shared memory, every digest checked
    ours_shm_nodigest_*     the same without a look at them: they are taken all the same, while bytes are copied
Ours comes right after each round of nixl with CMA, and is divided by it round by round: same_host_over_nixl_* without a
look at digests, which nixl has none of, and same_host_over_nixl_digests_* with them. Bytes are new in every round and looked at
after it. What cannot be had here is named under `skipped`. All of it takes 6.5 GiB of memory. The others' memory is
numpy's, which is of huge pages where the kernel has them for who asks: nixl takes twice as long over small ones.

No thread of nixl's spins where nothing needs one: it would take a core from whatever is measured, nixl before all.
"""

import argparse
import contextlib
import hashlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"1g": 1 << 30, "256m": 256 << 20}
MINE = ("nixl_", "mooncake_", "ours_shm_", "same_host_over_nixl_")
# Nothing measured takes so long.
LIMIT_S = 120
BLOCK = 1 << 20


class Unavailable(Exception):
    """Something cannot be measured here; the reason in words."""


def figure(values):
    """As `robust-bench weights` writes one."""
    load = os.getloadavg()[0]
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": values, "load": load}


# --- in the processes of nixl and mooncake, which run with another python ------------------------


class Nixl:
    """An agent with this memory."""

    def __init__(self, role, memory, spins):
        from nixl._api import nixl_agent, nixl_agent_config

        self.at, self.size = memory.ctypes.data, memory.nbytes
        self.agent = nixl_agent(role, nixl_agent_config(enable_prog_thread=spins, backends=["UCX"]))
        self.agent.register_memory([(self.at, self.size, 0, "")], "DRAM")

    def offer(self):
        return {"meta": self.agent.get_agent_metadata().hex(), "at": self.at}

    def progress(self):
        self.agent.get_new_notifs()

    def open(self, offer):
        peer = self.agent.add_remote_agent(bytes.fromhex(offer["meta"]))
        here = self.agent.get_xfer_descs([(self.at, self.size, 0)], "DRAM")
        there = self.agent.get_xfer_descs([(offer["at"], self.size, 0)], "DRAM")
        self.handle = self.agent.initialize_xfer("READ", here, there, peer)

    def read(self):
        state = self.agent.transfer(self.handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(self.handle)
        if state != "DONE":
            raise RuntimeError(f"the transfer ended as {state}")


class Mooncake:
    """An engine with this memory."""

    def __init__(self, role, memory, spins):
        from mooncake.engine import TransferEngine

        self.at, self.size = memory.ctypes.data, memory.nbytes
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("the engine did not start")
        if self.engine.register_memory(self.at, self.size) != 0:
            raise RuntimeError("the engine did not register the memory")

    def offer(self):
        return {"peer": f"127.0.0.1:{self.engine.get_rpc_port()}", "at": self.at}

    def progress(self):
        time.sleep(0.001)

    def open(self, offer):
        self.there = offer

    def read(self):
        if self.engine.transfer_sync_read(self.there["peer"], self.at, self.there["at"], self.size) != 0:
            raise RuntimeError("the transfer failed")


def node(kind, role, size, spins):
    """The source or the reader, until standard input closes: told by lines of JSON, and tells by them."""
    import numpy

    words = numpy.zeros((int(size) // BLOCK, BLOCK // 8), numpy.uint64)
    words.fill(7)  # or no page would be there yet
    side = {"nixl": Nixl, "mooncake": Mooncake}[kind](role, words.view(numpy.uint8).reshape(-1), spins == "spins")
    busy = threading.Event()

    def progress():
        # For who has no thread of its own: a reader that connects waits for it.
        while busy.wait():
            side.progress()

    def tell(**words):
        print(json.dumps(words), flush=True)

    def digest():
        return hashlib.sha256(words[:, ::512].tobytes()).hexdigest()

    threading.Thread(target=progress, daemon=True).start()
    tell(offer=side.offer())
    for line in sys.stdin:
        ((wish, value),) = json.loads(line).items()
        if wish == "fill":
            block = numpy.frombuffer(numpy.random.default_rng(value).bytes(BLOCK), numpy.uint64)
            numpy.bitwise_xor(block, numpy.arange(len(words), dtype=numpy.uint64)[:, None], out=words)
            tell(filled=digest())
        elif wish == "busy":
            busy.set() if value else busy.clear()
            tell(busy=value)
        elif wish == "open":
            side.open(value)
            tell(opened=True)
        elif wish == "read":
            # A read that left out any block would leave this behind.
            words[:, 0] = 0
            started = time.perf_counter()
            side.read()
            took = time.perf_counter() - started
            tell(read={"seconds": took, "digest": digest()})


# --- here ------------------------------------------------------------------------------------


class Process:
    """Told by lines of JSON and tells by them; it ends with the block."""

    def __init__(self, command, more=()):
        # What somebody has set for UCX or mooncake elsewhere is not what they come with.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("UCX_", "MC_", "NIXL_"))}
        self.errors = tempfile.TemporaryFile()
        self.child = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env={**environment, **dict(more)}, text=True, errors="replace",
        )
        self.lines, self.said = queue.Queue(), []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            self.lines.put((time.perf_counter(), line))
        self.lines.put((time.perf_counter(), None))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()
        self.errors.close()

    def tell(self, wish):
        try:
            self.child.stdin.write(json.dumps(wish) + "\n")
            self.child.stdin.flush()
        except OSError as error:
            raise Unavailable(f"it ended: {self.reason()}") from error

    def hear(self, key):
        """What the next line with this key says, and when it came."""
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                at, line = self.lines.get(timeout=max(0, until - time.monotonic()))
            except queue.Empty:
                raise Unavailable(f"it said nothing of `{key}` for {LIMIT_S} s") from None
            if line is None:
                raise Unavailable(f"it ended: {self.reason()}")
            if not line.startswith("{"):
                self.said.append(line)  # libraries write to standard output too
            elif key in (told := json.loads(line)):
                return told[key], at

    def ask(self, wish, key):
        self.tell(wish)
        return self.hear(key)[0]

    def reason(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(5)
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"status {self.child.returncode}, without a word"


class Peer:
    """A source and a reader of nixl's or mooncake's."""

    def __init__(self, stack, kind, size, spins=False, **environment):
        if "PEERS_PYTHON" not in os.environ:
            raise Unavailable("scripts/peers.sh could not set it up")
        self.size, self.busy = size, not spins
        command = [os.environ["PEERS_PYTHON"], __file__, "node", kind]
        # The reader polls while it waits: it needs no thread for that.
        threads = {"source": "spins" if spins else "rests", "reader": "rests"}
        started = [Process([*command, role, size, does], environment) for role, does in threads.items()]
        self.source, self.reader = map(stack.enter_context, started)
        offer = self.source.hear("offer")[0]
        self.reader.hear("offer")
        self.source.ask({"busy": self.busy}, "busy")
        self.reader.ask({"open": offer}, "opened")
        self.reader.ask({"read": None}, "read")
        self.source.ask({"busy": False}, "busy")

    def round(self, seed):
        """GB/s of a read of new bytes."""
        filled = self.source.ask({"fill": seed}, "filled")
        # The first after a pause is slow, for everybody.
        self.reader.ask({"read": None}, "read")
        told = self.reader.ask({"read": None}, "read")
        if told["digest"] != filled:
            raise Unavailable("the bytes that came are not those that were there")
        return self.size / told["seconds"] / 1e9

    def takes_cma(self):
        """Whether it said so, of reads of another one's memory."""
        said = "".join(self.reader.said).split("remote memory read")[1:]
        return any("cma" in table.split("ucp_")[1] for table in said)


class Ours:
    """A source and a puller of ours."""

    def __init__(self, stack, binaries, size):
        self.size, self.version = size, 1
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="robust-bench."))
        words = ["--bytes", size, "--road", f"shm:{folder}/roads", "--dtype", "F32"]
        secret = {"ROBUST_WEIGHTS_TOKEN": "bench"}
        started = [Process([binaries / "robust-weights", role, *words], secret) for role in ("source", "pull")]
        self.source, self.puller = map(stack.enter_context, started)
        self.addr = self.source.hear("listening")[0]["addr"]
        self.puller.hear("listening")
        self.source.hear("started")
        # Of its two buffers each has been written once then.
        for _ in range(2):
            self.round()

    def round(self):
        """GB/s of a bare fetch and of a pull of the next version."""
        self.version += 1
        self.source.tell({"publish": {"version": self.version, "seed": self.version}})
        manifest = self.source.hear("manifest")[0]
        key = self.source.hear("started")[0]["key"]
        at = {"id": 100, "addr": self.addr, "key": key, "parts": None, "starts": [0], "patches": []}
        came = self.puller.ask("stats", "stats")["fetched"]
        self.puller.ask({"raw_fetch": at}, "raw_fetched")
        took = self.puller.ask({"raw_fetch": at}, "raw_fetched")["time"]
        order = {"order": {"manifest": manifest, "sources": [{**at, "parts": [[0, 0, self.size]], "starts": []}]}}
        started = time.perf_counter()
        self.puller.tell(order)
        done, ended = self.puller.hear("done")
        if done["result"] != "ok" or done["version"] != self.version:
            sys.exit(f"bench_peers: error: a pull failed: {done}")
        checked = self.puller.ask("check", "checked")
        if checked["version"] != self.version or checked["wrong"]:
            sys.exit(f"bench_peers: error: a pull brought wrong bytes: {checked}")
        if self.puller.ask("stats", "stats")["fetched"] - came != 3 * self.size:
            sys.exit("bench_peers: error: a pull did not fetch all bytes")
        return self.size / (took["secs"] * 1e9 + took["nanos"]), self.size / (ended - started) / 1e9


class Report:
    """What was measured, and what was not."""

    def __init__(self):
        self.figures, self.skipped = {}, []

    def skip(self, what, reason):
        self.skipped.append(f"{what} skipped: {reason}")
        print(f"bench_peers: {self.skipped[-1]}", file=sys.stderr)

    def put(self, name, values):
        if values:
            self.figures[name] = figure(values)

    def write(self, path):
        """Beside what is there of others; of an earlier run of this nothing stays."""
        known = json.loads(path.read_text()) if path.exists() else {}
        known = {name: of for name, of in known.items() if not name.startswith(MINE)}
        others = [line for line in known.get("skipped", []) if not line.startswith(MINE)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**known, **self.figures, "skipped": others + self.skipped}, indent=1) + "\n")


def beside_ours(report, binaries, name, rounds):
    """Nixl with CMA, and ours right after each of its rounds; ours alone where there is no nixl."""
    theirs, bare, pulled = [], [], []
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as others:
        ours = Ours(stack, binaries, SIZES[name])
        peer = failed = None
        for at in range(rounds):
            try:
                if not failed:
                    peer = peer or nixl_with_cma(others, SIZES[name])
                    theirs.append(peer.round(at))
            except Unavailable as error:
                failed = error
                report.skip(f"nixl_cma_{name}", f"{error} (after {at} rounds)" if at else error)
                others.close()
            raw, pull = ours.round()
            bare.append(raw)
            pulled.append(pull)
    report.put(f"nixl_cma_{name}_gb_per_s", theirs)
    report.put(f"ours_shm_{name}_gb_per_s", pulled)
    report.put(f"ours_shm_nodigest_{name}_gb_per_s", bare)
    report.put(f"same_host_over_nixl_{name}", [a / b for a, b in zip(bare, theirs)])
    report.put(f"same_host_over_nixl_digests_{name}", [a / b for a, b in zip(pulled, theirs)])


def nixl_with_cma(stack, size):
    # It says which way it takes; no address but the loopback's is offered for the rest.
    peer = Peer(stack, "nixl", size, UCX_PROTO_INFO="y", UCX_NET_DEVICES="lo")
    if not peer.takes_cma():
        raise Unavailable("it does not take CMA on this host (may processes read each other's memory?)")
    return peer


def over_tcp(report, name, rounds):
    """The others, one after the other: nothing of ours is held against them."""
    nixl = {"spins": True, "UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}
    ways = {
        "nixl_tcp": ("nixl", nixl),
        "nixl_tcp_1m": ("nixl", {**nixl, "UCX_TCP_TX_SEG_SIZE": "1m", "UCX_TCP_RX_SEG_SIZE": "1m"}),
        "mooncake_tcp": ("mooncake", {"MC_TCP_BIND_ADDRESS": "127.0.0.1"}),
    }
    for way, (kind, more) in ways.items():
        values = []
        try:
            with contextlib.ExitStack() as stack:
                peer = Peer(stack, kind, SIZES[name], **more)
                for at in range(rounds):
                    values.append(peer.round(at))
        except Unavailable as error:
            report.skip(f"{way}_{name}", error)
        report.put(f"{way}_{name}_gb_per_s", values)


def set_up():
    """Makes sure that there is a python with the others, or leaves it at that: scripts/peers.sh says why."""
    script = ROOT / "scripts/peers.sh"
    if "PEERS_PYTHON" not in os.environ and subprocess.run([script], stdout=sys.stderr).returncode == 0:
        done = subprocess.run([script, "--run", "printenv", "PEERS_PYTHON"], stdout=subprocess.PIPE, text=True)
        os.environ["PEERS_PYTHON"] = done.stdout.strip()


def main():
    if sys.argv[1:2] == ["node"]:
        return node(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if not (args.binaries / "robust-weights").exists():
        sys.exit(f"bench_peers: error: there is no robust-weights in {args.binaries}")
    # Or those that were started would stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report()
    set_up()
    for name in SIZES:
        try:
            beside_ours(report, args.binaries.resolve(), name, args.rounds)
        except Unavailable as error:
            sys.exit(f"bench_peers: error: robust-weights: {error}")
        over_tcp(report, name, args.rounds)
    report.write(args.out)
    for name, of in report.figures.items():
        print(f"{name:36} {of['median']:9.3f} {of['min']:9.3f} {of['max']:9.3f} {of['load']:6.1f}")


if __name__ == "__main__":
    main()
