"""What two recordings of one engine may differ in is replaced: times, ids, ports, folders, roundings."""
import json
import re

# Numbers that say when, how long or where: their value tells nothing.
VOLATILE = re.compile(
    r"(_time|_ts|_latency|_throughput|_gb|_busy_us|_percent|uptime.*|.*_seed)$|^(created|timestamp|port|nccl_port|pid)$"
)
LOGPROB_DIGITS = 4
# Two runs add the same numbers up in another order.
LOGPROB_TOLERANCE = 2e-3


def text(value, places):
    """A string without this machine's folders and without ids that were drawn."""
    for path, token in places.items():
        value = value.replace(path, token)
    value = re.sub(r"(cmpl|modelperm|generate-tokens)-[0-9a-f]{16,}", r"\1-{id}", value)
    value = re.sub(r"^(vllm-[0-9.]+)-[0-9a-f]{8}$", r"\1-{id}", value)
    value = re.sub(r"\b[0-9a-f]{32}\b", "{id}", value)
    value = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00", "{time}", value)
    return re.sub(r"(site-packages/\S+?\.py\\*\", line )\d+", r"\g<1>0", value)


def tree(value, places, key=""):
    if isinstance(value, dict):
        return {text(k, places): tree(v, places, k) for k, v in value.items()}
    if isinstance(value, list):
        return [tree(v, places, key) for v in value]
    if isinstance(value, str):
        return text(value, places)
    if isinstance(value, bool) or value is None:
        return value
    if VOLATILE.search(key):
        return 0 if isinstance(value, int) else 0.0
    return round(value, LOGPROB_DIGITS) if isinstance(value, float) else value


def document(raw, places):
    """A body or a chunk's data: JSON where it is JSON, else text."""
    try:
        value = json.loads(raw)
    except ValueError:
        return text(raw, places)
    return tree(value, places)


def chunk(line, places):
    """A line of a stream, written with the spaces that the engine writes."""
    data = line.removeprefix("data: ")
    try:
        value = json.loads(data)
    except ValueError:
        return line
    spaced = json.dumps(value, ensure_ascii=False) == data
    separators = None if spaced else (",", ":")
    return "data: " + json.dumps(tree(value, places), ensure_ascii=False, separators=separators)


def shape(value):
    """The types of a value; a list is as its first item."""
    if isinstance(value, dict):
        return {k: shape(v) for k, v in sorted(value.items())}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__
    return "number"


def differences(old, new, at=""):
    """The places in which two normalised values differ, rounding of numbers apart."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key not in old or key not in new:
                yield f"{at}.{key}: only in the {'new' if key in new else 'old'} one"
            else:
                yield from differences(old[key], new[key], f"{at}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{at}: {len(old)} items, now {len(new)}"
        for i, (a, b) in enumerate(zip(old, new)):
            yield from differences(a, b, f"{at}[{i}]")
    elif isinstance(old, float) and isinstance(new, (int, float)) and not isinstance(new, bool):
        if abs(old - new) > LOGPROB_TOLERANCE:
            yield f"{at}: {old}, now {new}"
    elif old != new:
        yield f"{at}: {old!r}, now {new!r}"
