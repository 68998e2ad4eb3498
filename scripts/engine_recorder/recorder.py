"""Collects named exchanges with one engine, normalised, and compares or writes them."""
import json
import time

from . import normal
from .exchange import Exchange

# How two recordings of an exchange are compared: everything, the types only, or the status alone
# (what comes in between depends on when the client was there).
EXACT, SHAPE, STATUS = "exact", "shape", "status"


class Recorder:
    def __init__(self, engine, version, flags, port, places):
        self.engine, self.version, self.flags, self.port, self.places = engine, version, flags, port, places
        self.files = {}

    def get(self, name, path, note="", **options):
        return self._now(name, "GET", path, None, note, **options)

    def post(self, name, path, body=None, note="", **options):
        return self._now(name, "POST", path, body, note, **options)

    def start(self, path, body, timeout_s=60):
        """An exchange that goes on beside the others; `keep` it when it has ended."""
        return Exchange(self.port, "POST", path, body, timeout_s=timeout_s).start()

    def quiet(self, method, path, body=None, timeout_s=60):
        """An exchange that is not recorded."""
        return Exchange(self.port, method, path, body, timeout_s=timeout_s).run()

    def idle(self, seconds):
        time.sleep(seconds)

    def _now(self, name, method, path, body, note, compare=EXACT, headers=None, timeout_s=60, edit=None):
        one = Exchange(self.port, method, path, body, headers, timeout_s).run()
        self.keep(name, one, note, compare, edit)
        return one

    def keep(self, name, one, note="", compare=EXACT, edit=None, ends=None):
        """Records an exchange; of a long stream only so many chunks at either end, where that says all."""
        if name in self.files:
            raise RuntimeError(f"{name} is recorded twice")
        reply = {k: v for k, v in one.reply.items() if k != "ended"}
        if one.lines:
            lines = one.lines
            if ends and len(lines) > 2 * ends:
                reply["left_out"] = {"after": ends, "chunks": len(lines) - 2 * ends}
                lines = lines[:ends] + lines[-ends:]
            reply["chunks"] = [normal.chunk(line, self.places) for line in lines]
        elif "body" in reply:
            raw = edit(reply["body"]) if edit else reply["body"]
            reply["body"] = normal.document(raw, self.places)
        body = normal.document(one.body, self.places) if isinstance(one.body, str) else normal.tree(one.body, self.places)
        self.files[name] = {
            "engine": self.engine, "version": self.version, "flags": self.flags, "note": note, "compare": compare,
            "request": {"method": one.method, "path": one.path, "headers": one.headers, "body": body},
            "reply": reply,
        }


def write(files, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def parsed(reply):
    """A reply whose stream is its tokens and the shapes at its ends: a busy machine has two tokens in a chunk."""
    chunks = reply.get("chunks")
    if chunks is None:
        return reply
    parts = [json.loads(c.removeprefix("data: ")) for c in chunks if c != "data: [DONE]"]
    ends = {"first": normal.shape(parts[:1]), "last": normal.shape(parts[-1:]), "done": chunks[-1] == "data: [DONE]"}
    return {k: v for k, v in reply.items() if k != "chunks"} | ends | {"tokens": tokens(parts)}


def tokens(parts):
    """All tokens of a stream; where every chunk has all so far, those of the last."""
    lists = [p["output_ids"] for p in parts if "output_ids" in p]
    if len(lists) > 1 and lists[-1][: len(lists[-2])] == lists[-2]:
        return lists[-1]
    lists += [c.get("token_ids") or [] for p in parts for c in p.get("choices", [])]
    return [token for one in lists for token in one]


def drift(files, folder):
    """Lines that say where the engine answers otherwise than recorded."""
    for name in sorted(files.keys() | {p.stem for p in folder.glob("*.json")}):
        path = folder / f"{name}.json"
        if name not in files or not path.exists():
            yield f"{name}: {'not recorded before' if name in files else 'recorded, and asked no longer'}"
            continue
        old, new = json.loads(path.read_text()), files[name]
        for line in normal.differences(old["request"], new["request"]):
            yield f"{name}: request{line}"
        a, b = parsed(old["reply"]), parsed(new["reply"])
        if new["compare"] == STATUS:
            a, b = a.get("status"), b.get("status")
        elif new["compare"] == SHAPE:
            a, b = normal.shape(a), normal.shape(b)
        for line in normal.differences(a, b):
            yield f"{name}: reply{line}"
