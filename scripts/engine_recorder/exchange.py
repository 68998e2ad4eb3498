"""One exchange over HTTP as a client sees it, whole or as a stream, also when it never ends."""
import http.client
import json
import socket
import threading

JSON = {"Content-Type": "application/json"}


class Exchange:
    """A request and what came back. In a thread of its own with `start`, here with `run`."""

    def __init__(self, port, method, path, body=None, headers=None, timeout_s=60):
        self.port, self.method, self.path, self.timeout_s = port, method, path, timeout_s
        self.body = body
        self.headers = headers if headers is not None else (JSON if body is not None else {})
        self.reply, self.lines = {}, []
        self._seen = threading.Condition()
        self._thread = threading.Thread(target=self._exchange, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def run(self):
        self._exchange()
        return self

    def join(self):
        self._thread.join(self.timeout_s + 10)
        return self

    def until_lines(self, count):
        """Waits until that many lines of the stream are there."""
        with self._seen:
            if not self._seen.wait_for(lambda: len(self.lines) >= count or self.reply.get("ended"), self.timeout_s):
                raise RuntimeError(f"{self.path}: only {len(self.lines)} of {count} chunks")
        return self

    def _exchange(self):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout_s)
        try:
            raw = self.body if self.body is None or isinstance(self.body, str) else json.dumps(self.body)
            link.putrequest(self.method, self.path)
            for name, value in self.headers.items():
                link.putheader(name, value)
            if raw is not None:
                link.putheader("Content-Length", str(len(raw.encode())))
            link.endheaders(raw.encode() if raw is not None else None)
            self._read(link.getresponse())
        except (socket.timeout, TimeoutError):
            self.reply["timeout_s"] = self.timeout_s
        except (OSError, http.client.HTTPException) as error:
            self.reply["broken"] = type(error).__name__
        finally:
            link.close()
            with self._seen:
                self.reply["ended"] = True
                self._seen.notify_all()

    def _read(self, response):
        self.reply["status"] = response.status
        kind = response.getheader("content-type")
        self.reply["headers"] = {"content-type": kind} if kind else {}
        if not (kind or "").startswith("text/event-stream"):
            self.reply["body"] = response.read().decode()
            return
        while line := response.readline():
            if line := line.decode().rstrip("\n"):
                with self._seen:
                    self.lines.append(line)
                    self._seen.notify_all()
        # The library takes a connection that breaks within a stream for the end of it.
        if not self.lines or self.lines[-1] != "data: [DONE]":
            self.reply["broken"] = "EndOfStream"
