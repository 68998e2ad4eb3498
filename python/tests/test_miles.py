"""The controller as a program: against a server that answers wrongly, and against miles' own control server.

``UnderMiles`` needs the source of miles on the path (``PYTHONPATH``; it is not on PyPI) and what its control server
imports. Everything between the controller and the trainer's processes is miles': server, handles, cells with their
states, health checks, the refreshing of cells. Played are the processes (actors of Ray that sleep instead of training)
and the loop that calls them.
"""

import asyncio
import http.client
import http.server
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import unittest

try:
    import ray
    from miles.ray.train.cell import RayTrainCell
    from miles.ray.train.cell_monitor import create_trainer_cell_health_checker
    from miles.ray.train.group import RayTrainGroup
    from miles.utils.ft_utils.control_server.handles import _ActorCellHandle
    from miles.utils.ft_utils.control_server.registry import _CellRegistry
    from miles.utils.ft_utils.control_server.server import _start_control_server_raw
    from miles.utils.ft_utils.health_checker import NoopHealthChecker, SimpleHealthCheckerConfig

    MISSING = None
except ImportError as error:
    MISSING = f"miles and what its control server imports are not installed: {error}"

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "src")


def start(port, *options):
    argv = [sys.executable, "-m", "robustrl.miles", "--server", f"http://127.0.0.1:{port}", "--json", *options]
    env = {**os.environ, "PYTHONPATH": SOURCE + os.pathsep + os.environ.get("PYTHONPATH", "")}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def run(port, *options, timeout=30):
    """The exit code and the events."""
    with start(port, *options) as program:
        out, err = program.communicate(timeout=timeout)
    assert not err, err
    return program.returncode, [json.loads(line) for line in out.splitlines()]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class WrongServers(unittest.TestCase):
    def served(self, *answers):
        """A server that gives these answers, the last one again and again. Returns its port and what was asked."""
        asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked.append((self.command, self.path, body.decode()))
                status, text = answers[min(len(asked), len(answers)) - 1]
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            do_PATCH = do_GET

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server.server_port, asked

    def test_nobody_at_the_address(self):
        code, events = run(free_port(), "--once")
        self.assertEqual((code, [event["event"] for event in events]), (3, ["unreachable"]))
        self.assertIn("ConnectionRefusedError", events[0]["text"])

    def test_a_server_that_stays_away_ends_the_program_within_its_bound(self):
        code, events = run(free_port(), "--poll", "0.1", "--unreachable-after", "0.3")
        self.assertEqual((code, [event["event"] for event in events]), (3, ["unreachable", "unreachable"]))
        self.assertIn("has not answered for 0.3 s", events[1]["text"])

    def test_another_program_at_the_address(self):
        for answer in ((404, '{"detail":"Not Found"}'), (200, "<html>"), (200, '{"kind":"PodList","items":[]}'), (200, '{"kind":"CellList","items":[{}]}')):
            for options in (["--once"], []):
                code, events = run(self.served(answer)[0], *options)
                self.assertEqual((code, events[-1]["event"]), (5, "not_miles"), answer)

    def test_an_error_of_the_server_is_said_in_its_own_words_and_is_not_the_end(self):
        status = '{"apiVersion":"v1","kind":"Status","status":"Failure","message":"the loop is busy","reason":"InternalError","code":500}'
        port, _ = self.served((500, status), (200, '{"kind":"CellList","items":[]}'))
        with start(port, "--poll", "0.05") as program:
            lines = [json.loads(program.stdout.readline()) for _ in range(2)]
            program.terminate()
            self.assertEqual(program.wait(timeout=10), 0, "SIGTERM is no error")
        self.assertEqual([line["event"] for line in lines], ["unreachable", "reachable"])
        self.assertIn("GET /api/v1/cells: 500: the loop is busy", lines[0]["text"])

    def test_wrong_arguments_say_what_is_wrong(self):
        for options, said in ((["--budget", "-1"], "--budget is -1"), (["--poll", "-3"], "'-3' is no time"), (["--poll", "nan"], "'nan' is no time")):
            with start(1, *options) as program:
                _, err = program.communicate(timeout=30)
            self.assertEqual(program.returncode, 2)
            self.assertIn(said, err)

    def test_neither_torch_nor_anything_else_need_be_installed(self):
        env = {"PYTHONPATH": SOURCE}
        done = subprocess.run([sys.executable, "-S", "-m", "robustrl.miles", "--help"], env=env, capture_output=True, text=True, timeout=30)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Process:
    """A trainer's process, as far as miles' cells call it."""

    def init(self, **_):
        return os.getpid()

    def reconfigure_indep_dp(self, **_):
        pass

    def send_ckpt(self, dst_rank):
        pass

    def get_heartbeat_status(self):
        pass

    def train(self):
        time.sleep(0.2)

    def inject_fault(self, mode):
        from miles.utils.test_utils.fault_injector import inject_fault

        inject_fault(mode)


class Training(threading.Thread):
    """The loop of ``RayTrainGroup.train``: refresh the cells, have those that live train, again and again."""

    def __init__(self, cells):
        super().__init__(daemon=True)
        self.stop, self.ready, self.error = threading.Event(), threading.Event(), None
        self.made = [0] * cells
        self.group = object.__new__(RayTrainGroup)
        self.group.args, self.group._rollout_manager, self.group._indep_dp_quorum_id = None, None, 0
        self.group._cells = [self.cell(index) for index in range(cells)]

    def cell(self, index):
        def processes():
            self.made[index] += 1
            return [ray.remote(Process).options(num_cpus=0, max_concurrency=4).remote()]

        cell = RayTrainCell(args=None, role="actor", with_ref=False, cell_index=index, actor_factory=processes, rollout_manager=None, health_checker=NoopHealthChecker())
        config = SimpleHealthCheckerConfig(interval=0.3, timeout=1.0, first_wait=0.5, failure_threshold=2)
        cell.health_checker = create_trainer_cell_health_checker(cell=cell, config=config)
        return cell

    def run(self):
        try:
            asyncio.run(self.rounds())
        except BaseException as error:
            self.error = error
            self.ready.set()

    async def rounds(self):
        await self.group.init()
        self.ready.set()
        while not self.stop.is_set():
            await self.group._refresh_cells(rollout_id=0)
            await self.group._execute_all_alive_and_catch("train")


@unittest.skipIf(MISSING, MISSING)
class UnderMiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # What miles logs of the faults is not this test's to say.
        logging.disable(logging.CRITICAL)
        cls.addClassCleanup(logging.disable, logging.NOTSET)
        env = {"PYTHONPATH": HERE + os.pathsep + os.environ.get("PYTHONPATH", "")}
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": env}, object_store_memory=80 << 20)
        cls.addClassCleanup(ray.shutdown)
        cls.training = Training(cells=2)
        cls.training.start()
        cls.addClassCleanup(cls.training.join)
        cls.addClassCleanup(cls.training.stop.set)
        assert cls.training.ready.wait(120) and cls.training.error is None, cls.training.error
        registry = _CellRegistry()
        for index in range(2):
            registry.register(_ActorCellHandle(group=cls.training.group, cell_index=index))
        cls.port = free_port()
        _start_control_server_raw(registry=registry, port=cls.port)
        cls.until(lambda: run(cls.port, "--once")[0] == 0)

    @staticmethod
    def until(said, timeout=30):
        end = time.monotonic() + timeout
        while not said():
            assert time.monotonic() < end, "it did not come true in time"
            time.sleep(0.1)

    def ask(self, method, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        self.assertEqual(reply.status, 200, text)

    def healed(self, cell, mode):
        """Injects the fault by miles' own route, and returns the controller's events of that cell until it recovered."""
        before = list(self.training.made)
        options = ["--poll", "0.2", "--resume-delay", "0.5", "--settle", "0.5"]
        with start(self.port, *options) as program:
            watchdog = threading.Timer(60, program.kill)
            watchdog.start()
            self.ask("POST", f"/api/v1/cells/{cell}/inject-fault", {"mode": mode, "sub_index": 0})
            events = []
            for line in program.stdout:
                events.append(json.loads(line))
                if events[-1]["event"] == "recovered":
                    break
            watchdog.cancel()
            program.terminate()
            self.assertEqual(program.wait(timeout=10), 0, events)
        self.assertEqual({event["cell"] for event in events}, {cell}, events)
        index = int(cell[-1])
        self.assertEqual([after - was for was, after in zip(before, self.training.made)], [int(index == 0), int(index == 1)], "its processes alone are new")
        self.assertTrue(self.training.group._cells[index].is_alive)
        return events

    def test_1_a_killed_process_whose_cell_miles_stopped_itself(self):
        events = self.healed("actor-1", "sigkill")
        self.assertEqual([event["event"] for event in events], ["detected", "resumed", "recovered"])
        self.assertEqual(events[0]["evidence"], "phase Suspended, Healthy absent")
        self.assertGreaterEqual(events[-1]["restart_s"], 0.5)
        self.assertGreaterEqual(events[-1]["recovery_s"], events[-1]["restart_s"])

    def test_2_a_process_that_hangs_and_keeps_its_cell_and_all_others_waiting(self):
        events = self.healed("actor-0", "deadlock")
        self.assertEqual([event["event"] for event in events], ["detected", "suspended", "resumed", "recovered"])
        self.assertEqual(events[0]["evidence"], "phase Running, Healthy False (HealthCheckFailed)")

    def test_3_looking_once_says_what_would_be_done_and_does_nothing(self):
        self.until(lambda: run(self.port, "--once")[0] == 0)
        made = list(self.training.made)
        self.ask("PATCH", "/api/v1/cells/actor-1", {"spec": {"suspend": True}})
        code, events = run(self.port, "--once")
        self.assertEqual((code, [(event["cell"], event["event"]) for event in events]), (1, [("actor-0", events[0]["event"]), ("actor-1", "stopped")]))
        self.assertTrue(events[1]["text"].endswith("it would be resumed"), events)
        time.sleep(0.5)
        self.assertTrue(self.training.group._cells[1].is_stopped)
        self.assertEqual(self.training.made, made)

    def test_4_a_trainer_without_a_cell_that_runs_is_lost(self):
        self.ask("PATCH", "/api/v1/cells/actor-1", {"spec": {"suspend": True}})
        options = ["--poll", "0.1", "--lost-after", "0.5", "--hold", "actor-1", "--hold", "actor-0"]
        with start(self.port, *options) as program:
            time.sleep(0.5)
            self.ask("PATCH", "/api/v1/cells/actor-0", {"spec": {"suspend": True}})
            out, _ = program.communicate(timeout=30)
        self.assertEqual(program.returncode, 4, out)
        lost = json.loads(out.splitlines()[-1])
        self.assertEqual(lost["event"], "lost")
        self.assertIn("actor-0: phase Suspended", lost["text"])


if __name__ == "__main__":
    unittest.main()
