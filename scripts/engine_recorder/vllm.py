"""vLLM's catalogue."""
import json
import os
import signal

from .recorder import SHAPE, STATUS

GENERATE = "/inference/v1/generate"
PROMPT = [1, 5, 9, 3, 7, 11, 2]
GREEDY = {"max_tokens": 6, "temperature": 0, "logprobs": 0}
# Long enough that something can happen meanwhile.
LONG = {"token_ids": PROMPT, "stream": True, "sampling_params": {"max_tokens": 240, "temperature": 0, "logprobs": 0, "ignore_eos": True}}
LENGTH = 256
FLAGS = ["--enable-scale-out", "--logprobs-mode", "processed_logprobs"]
ENV = {
    "VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
}
STARTS = [("", FLAGS), ("refused_", FLAGS), ("killed_", FLAGS)]
READY = "/health"


def argv(python, model, flags):
    return [
        python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1", "--port", "{port}",
        "--dtype", "float32", "--max-model-len", str(LENGTH), "--max-num-seqs", "8", "--enforce-eager",
        "--served-model-name", "q", *flags,
    ]


def ask(ids=PROMPT, stream=False, sampling=None, **more):
    body = {"token_ids": ids, "sampling_params": sampling or GREEDY, **more}
    return body | {"stream": True} if stream else body


def shortened(text):
    """The configuration and the machine's environment are 20 KB, and nobody's to rely on."""
    return json.dumps({k: v.split("=")[0] if isinstance(v, str) else {} for k, v in json.loads(text).items()})


def series(text):
    """The names of the metrics, one a line, without the times at which they were made."""
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and line[0] != "#"}
    return "\n".join(sorted(n for n in names if not n.endswith("_created"))) + "\n"


def record(r, engine, models, life):
    # The first request of a life takes many seconds: something is compiled.
    r.quiet("POST", GENERATE, ask(), timeout_s=300)
    if life == "refused_":
        refused_loads(r, models)
    elif life == "killed_":
        death(r, engine)
    else:
        information(r)
        generation(r)
        refusals(r)
        completions(r)
        for mode in ("abort", "wait", "keep"):
            pause(r, mode)
        aborts(r)
        weights(r, models)
        memory(r)


def information(r):
    r.get("version", "/version")
    r.get("server_info", "/server_info", compare=SHAPE, edit=shortened)
    r.get("health", "/health")
    r.get("ping", "/ping")
    r.get("load", "/load")
    r.get("models", "/v1/models")
    r.get("weight_info", "/weight_info")
    r.get("is_paused", "/is_paused")
    r.get("world_size", "/get_world_size")
    r.post("rpc_check_health", "/collective_rpc", {"method": "check_health", "timeout": 3})
    r.get("unknown_route", "/nowhere")
    r.get("wrong_method", GENERATE)
    r.get("fault_tolerance_status", "/fault_tolerance/status", "off unless configured")


def generation(r):
    r.post("generate", GENERATE, ask())
    r.post("generate_request_id", GENERATE, ask(request_id="rq-1"))
    r.post("generate_stream", GENERATE, ask(stream=True, request_id="rq-2"))
    r.post("generate_stream_usage", GENERATE, ask(stream=True, stream_options={"include_usage": True}))
    r.post("generate_no_logprobs", GENERATE, ask(sampling={"max_tokens": 4, "temperature": 0}))
    seeded = {"max_tokens": 6, "temperature": 0.7, "seed": 3, "logprobs": 0, "ignore_eos": True}
    r.post("generate_seed", GENERATE, ask(sampling=seeded))
    r.post("generate_stop_token", GENERATE, ask(sampling=GREEDY | {"stop_token_ids": [3]}))
    r.post("generate_stop_token_stream", GENERATE, ask(stream=True, sampling=GREEDY | {"stop_token_ids": [3]}))
    r.post("generate_eos", GENERATE, ask([1, 5], sampling=GREEDY), "the model's own end of sequence")
    r.post("generate_full", GENERATE, ask([3] * 250, sampling=GREEDY | {"max_tokens": 100, "ignore_eos": True}),
           "max_tokens beyond the model's length is cut")


def refusals(r):
    r.post("too_long", GENERATE, ask([3] * (LENGTH + 8)))
    r.post("too_long_stream", GENERATE, ask([3] * (LENGTH + 8), stream=True))
    r.post("out_of_vocabulary", GENERATE, ask([1, 5, 5000]))
    r.post("out_of_vocabulary_stream", GENERATE, ask([1, 5, 5000], stream=True), "status 200, the error in the stream")
    r.post("unknown_sampling_key", GENERATE, ask(sampling=GREEDY | {"nonsense": 3}), "ignored")
    r.post("unknown_key", GENERATE, ask(nonsense=3), "ignored")
    r.post("bad_sampling_value", GENERATE, ask(sampling=GREEDY | {"temperature": -1}))
    r.post("empty_input", GENERATE, ask([]))
    r.post("no_input", GENERATE, {"sampling_params": GREEDY})
    r.post("bad_body", GENERATE, "not json")
    r.post("no_content_type", GENERATE, ask(), headers={})


def completions(r):
    body = {"model": "q", "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "logprobs": 0, "return_token_ids": True}
    r.post("completions", "/v1/completions", body)
    r.post("completions_stream", "/v1/completions", body | {"stream": True})
    r.post("completions_text", "/v1/completions", body | {"prompt": "1+1="})
    r.post("completions_unknown_model", "/v1/completions", body | {"model": "nope"})


def pause(r, mode):
    """A pause while a request runs, another asked meanwhile, and going on."""
    running = r.start(GENERATE, LONG | {"request_id": f"long-{mode}"}).until_lines(10)
    r.post(f"pause_{mode}", f"/pause?mode={mode}")
    r.get(f"pause_{mode}_is_paused", "/is_paused")
    r.get(f"pause_{mode}_health", "/health")
    r.post(f"pause_{mode}_check_health", "/collective_rpc", {"method": "check_health", "timeout": 3})
    r.post(f"pause_{mode}_generate", GENERATE, ask(), "accepted, and waits", timeout_s=3)
    r.post(f"pause_{mode}_resume", "/resume")
    r.keep(f"pause_{mode}_running", running.join(), "asked before the pause", STATUS, ends=12)


def aborts(r):
    r.post("pause_bad_mode", "/pause?mode=bogus")
    running = r.start(GENERATE, LONG | {"request_id": "abort-me"}).until_lines(10)
    r.post("abort_own_id", "/abort_requests", {"request_ids": ["abort-me"]}, "counted, and nothing ends")
    r.post("abort", "/abort_requests", {"request_ids": ["generate-tokens-abort-me"]}, "the id of the reply")
    r.keep("abort_running", running.join(), "ended by the id of its reply", STATUS)
    r.post("abort_unknown", "/abort_requests", {"request_ids": ["nobody"]}, "counted all the same")
    r.post("abort_nothing", "/abort_requests", {}, "all, of which there are none")
    running = r.start(GENERATE, LONG | {"request_id": "abort-me-too"}).until_lines(10)
    r.post("abort_all", "/abort_requests", {}, compare=SHAPE)
    r.keep("abort_all_running", running.join(), "", STATUS)
    r.post("abort_scale_out", "/inference/v1/abort_requests", {"request_ids": ["nobody"]})


def reload(models, name):
    return {"method": "reload_weights", "kwargs": {"weights_path": f"{models}/{name}"}}


def weights(r, models):
    checker = {"action": "checksum"}
    sums = r.post("checksum", "/weight_checker", checker, "packed layers are the SHA-256 of nothing")
    running = r.start(GENERATE, LONG | {"request_id": "over-an-update"}).until_lines(20)
    r.quiet("POST", "/pause?mode=keep")
    r.post("reload", "/collective_rpc", reload(models, "small-2"))
    r.post("reset_prefix_cache", "/reset_prefix_cache")
    r.post("update_weight_version", "/update_weight_version", {"new_version": "2"})
    r.quiet("POST", "/resume")
    r.keep("reload_running", running.join(), "its last chunk has the spans", STATUS)
    r.get("reload_weight_info", "/weight_info")
    r.post("reload_checksum", "/weight_checker", checker)
    r.post("reload_generate", GENERATE, ask(), "the new body with the old output head: tied embeddings on a processor")
    base = json.loads(sums.reply["body"])["checksums"]
    some = {k: base[k] for k in sorted(base) if k.endswith(("embed_tokens.weight", "model.norm.weight"))}
    r.post("compare", "/weight_checker", {"action": "compare", "baseline": some})


def refused_loads(r, models):
    """What the engine cannot do, and whether it lives on."""
    r.post("weight_transfer_init", "/init_weight_transfer_engine", {"init_info": {}}, "without --weight-transfer-config")
    r.post("weight_transfer_start", "/start_weight_update", None, "without --weight-transfer-config")
    r.post("weight_transfer_generate", GENERATE, ask(), "after both")
    r.post("rpc_unknown", "/collective_rpc", {"method": "no_such_method"})
    r.post("rpc_unknown_generate", GENERATE, ask())
    r.post("reload_missing", "/collective_rpc", reload(models, "missing"), "the engine dies of it")
    r.post("reload_missing_generate", GENERATE, ask(), "after it")
    r.get("reload_missing_health", "/health", "after it")


def memory(r):
    r.get("metrics", "/metrics", "names only", edit=series)
    r.post("release_kv_unpaused", "/release_kv_cache_memory")
    r.get("is_sleeping", "/is_sleeping")
    r.post("sleep", "/sleep?level=1", None, "without --enable-sleep-mode")
    r.get("sleep_is_sleeping", "/is_sleeping")
    r.post("sleep_generate", GENERATE, ask(), timeout_s=3)
    r.post("wake_up", "/wake_up")
    r.post("wake_up_generate", GENERATE, ask())


def death(r, engine):
    """A worker that is killed, as clients see it."""
    worker = engine.process("VLLM::Worker")
    running = r.start(GENERATE, LONG | {"request_id": "orphan"}).until_lines(10)
    os.kill(worker, signal.SIGKILL)
    r.keep("worker_killed_running", running.join(), "the worker is killed meanwhile", STATUS)
    r.get("worker_killed_health", "/health", "soon after", compare=STATUS)
    r.post("worker_killed_generate", GENERATE, ask(), "soon after", compare=STATUS, timeout_s=5)
