"""SGLang's catalogue: two lives, with the stream as it is by default (all so far) and incremental."""
import os
import signal

from .recorder import SHAPE, STATUS
from .vllm import PROMPT, series

GENERATE = "/generate"
GREEDY = {"max_new_tokens": 6, "temperature": 0}
LENGTH = 256
# Long enough that something can happen meanwhile.
LONG = {"max_new_tokens": 240, "temperature": 0, "ignore_eos": True}
# A stream of all so far grows with the square of its length.
ENDS = 4
ENV = {
    "SGLANG_USE_CPU_ENGINE": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
INCREMENTAL = "--incremental-streaming-output"
STARTS = [("", []), ("incremental_", [INCREMENTAL]), ("broken_", [])]
READY = "/model_info"


def argv(python, model, flags):
    return [
        python, "-m", "sglang.launch_server", "--model-path", model, "--device", "cpu", "--host", "127.0.0.1",
        "--port", "{port}", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--disable-cuda-graph",
        "--disable-overlap-schedule", "--skip-server-warmup", "--dtype", "float32", "--max-total-tokens", "4096",
        "--max-running-requests", "8", "--context-length", str(LENGTH), "--grammar-backend", "none", "--enable-metrics",
        *flags,
    ]


def ask(ids=PROMPT, stream=False, sampling=None, **more):
    body = {"input_ids": ids, "sampling_params": sampling or GREEDY, "return_logprob": True, **more}
    return body | {"stream": True} if stream else body


def long(rid):
    return ask(stream=True, sampling=LONG, rid=rid)


def record(r, engine, models, prefix):
    r.quiet("POST", GENERATE, ask(), timeout_s=300)
    r.quiet("POST", "/flush_cache")
    if prefix == "broken_":
        broken(r, models)
        return
    if prefix:
        incremental(r, engine, models, prefix)
        return
    information(r)
    generation(r)
    refusals(r)
    completions(r)
    for mode in ("abort", "retract", "in_place"):
        pause(r, mode)
    aborts(r)
    weights(r, models)
    memory(r)
    poison(r)


def information(r):
    r.get("model_info", "/model_info")
    r.get("server_info", "/server_info", compare=SHAPE)
    r.get("ready", "/ready")
    r.get("health", "/health", "generates: a second at least")
    r.get("health_generate", "/health_generate")
    r.get("models", "/v1/models")
    r.get("loads", "/v1/loads", compare=SHAPE)
    r.get("get_weight_version", "/get_weight_version", "gone")
    r.get("unknown_route", "/nowhere")
    r.get("wrong_method", GENERATE)


def generation(r):
    r.post("generate", GENERATE, ask())
    r.post("generate_cached", GENERATE, ask(), "a prefix of it is in the cache")
    r.post("generate_rid", GENERATE, ask(rid="rq-1"))
    r.post("generate_stream", GENERATE, ask(stream=True, rid="rq-2"), "every chunk has all so far")
    r.post("generate_no_logprobs", GENERATE, {"input_ids": PROMPT, "sampling_params": GREEDY})
    r.post("generate_no_logprobs_stream", GENERATE, {"input_ids": PROMPT, "sampling_params": GREEDY, "stream": True})
    seeded = {"max_new_tokens": 6, "temperature": 0.7, "sampling_seed": 3, "ignore_eos": True}
    r.post("generate_seed", GENERATE, ask(sampling=seeded), "the seed gives no same tokens", compare=SHAPE)
    r.post("generate_stop_token", GENERATE, ask(sampling=GREEDY | {"stop_token_ids": [3]}))
    r.post("generate_stop_token_stream", GENERATE, ask(stream=True, sampling=GREEDY | {"stop_token_ids": [3]}))
    r.post("generate_eos", GENERATE, ask([1, 5]), "the model's own end of sequence")
    r.post("generate_full", GENERATE, ask([3] * 250, sampling=LONG | {"max_new_tokens": 100}),
           "more new tokens than the context has room for")
    r.post("generate_batch", GENERATE, ask([[1, 5, 9], [3, 7]]))
    r.post("generate_text", GENERATE, {"text": "1+1=", "sampling_params": GREEDY})


def refusals(r):
    r.post("too_long", GENERATE, ask([3] * (LENGTH + 8)))
    r.post("too_long_stream", GENERATE, ask([3] * (LENGTH + 8), stream=True))
    r.post("unknown_sampling_key", GENERATE, ask(sampling=GREEDY | {"nonsense": 3}))
    r.post("unknown_key", GENERATE, ask(nonsense=3))
    r.post("bad_sampling_value", GENERATE, ask(sampling=GREEDY | {"temperature": -1}))
    r.post("bad_sampling_value_stream", GENERATE, ask(stream=True, sampling=GREEDY | {"temperature": -1}))
    r.post("no_input", GENERATE, {"sampling_params": GREEDY})
    r.post("bad_body", GENERATE, "not json")
    r.post("no_content_type", GENERATE, ask(), headers={})


def completions(r):
    body = {"model": "q", "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "logprobs": 1, "return_token_ids": True}
    r.post("completions", "/v1/completions", body)
    r.post("completions_stream", "/v1/completions", body | {"stream": True})


def pause(r, mode):
    """A pause while a request runs, another asked meanwhile, and going on."""
    running = r.start(GENERATE, long(f"long-{mode}")).until_lines(10)
    r.post(f"pause_{mode}", "/pause_generation", {"mode": mode})
    r.get(f"pause_{mode}_ready", "/ready")
    r.post(f"pause_{mode}_generate", GENERATE, ask(), "accepted, and waits", timeout_s=3)
    if mode == "in_place":
        r.get("pause_in_place_health", "/health", "never answers while paused", timeout_s=3)
    r.post(f"pause_{mode}_continue", "/continue_generation", {})
    r.keep(f"pause_{mode}_running", running.join(), "asked before the pause", STATUS, ends=ENDS)


def aborts(r):
    r.post("pause_bad_mode", "/pause_generation", {"mode": "bogus"})
    r.post("continue_no_body", "/continue_generation")
    running = r.start(GENERATE, long("abort-me")).until_lines(10)
    r.post("abort", "/abort_request", {"rid": "abort-me"})
    r.keep("abort_running", running.join(), "ended by its id", STATUS, ends=ENDS)
    running = r.start(GENERATE, ask(sampling=LONG, rid="whole"))
    r.idle(0.2)
    r.post("abort_prefix", "/abort_request", {"rid": "wh"}, "a prefix of an id ends nothing")
    r.post("abort_whole", "/abort_request", {"rid": "whole"})
    r.keep("abort_whole_running", running.join(), "ended by its id", STATUS)
    r.post("abort_unknown", "/abort_request", {"rid": "nobody"})
    r.post("abort_nothing", "/abort_request", {})
    r.post("abort_all", "/abort_request", {"abort_all": True})


def update(models, name, version, **more):
    return {"model_path": f"{models}/{name}", "weight_version": version, **more}


def weights(r, models):
    path, checker = "/update_weights_from_disk", {"action": "checksum"}
    r.post("checksum", "/weights_checker", checker)
    r.post("flush", "/flush_cache")
    running = r.start(GENERATE, long("over-an-update")).until_lines(20)
    r.quiet("POST", "/pause_generation", {"mode": "in_place"})
    r.post("update", path, update(models, "small-2", "2", flush_cache=False), "paused in place", compare=SHAPE)
    r.quiet("POST", "/continue_generation", {})
    r.keep("update_running", running.join(), "its last chunk has the spans", STATUS, ends=ENDS)
    r.get("update_model_info", "/model_info")
    r.post("update_checksum", "/weights_checker", checker)
    r.post("update_generate_stale", GENERATE, ask(), "not flushed: served from the old weights' keys and values", compare=STATUS)
    r.quiet("POST", "/flush_cache")
    r.post("update_generate", GENERATE, ask(), "flushed")
    r.post("update_flushed", path, update(models, "small-1", "3", flush_cache=True))
    r.post("update_no_version", path, {"model_path": f"{models}/small-2"}, "the version stays")
    r.post("update_missing", path, update(models, "missing", "4"))
    r.post("update_no_path", path, {})
    r.get("update_missing_model_info", "/model_info")
    r.post("update_missing_generate", GENERATE, ask(), "what a failed load leaves")
    r.post("update_weight_version", "/update_weight_version", {"new_version": "5"})
    r.post("from_tensor_without_begin", "/update_weights_from_tensor", {"serialized_named_tensors": []})
    r.post("begin_weight_update", "/begin_weight_update", {})
    r.post("end_weight_update", "/end_weight_update", {})


def memory(r):
    r.get("metrics", "/metrics", "names only", edit=series)
    r.post("release_memory", "/release_memory_occupation", {}, "without --enable-memory-saver")
    r.post("resume_memory", "/resume_memory_occupation", {}, "without --enable-memory-saver")


def poison(r):
    """A token id outside the vocabulary ends the server; another client's request goes with it."""
    running = r.start(GENERATE, long("bystander")).until_lines(10)
    r.post("out_of_vocabulary", GENERATE, ask([1, 5, 5000]), "the server dies of it", compare=STATUS, timeout_s=20)
    r.keep("out_of_vocabulary_running", running.join(), "beside it", STATUS, ends=ENDS)


def incremental(r, engine, models, prefix):
    name = prefix + "generate_stream"
    r.post(name, GENERATE, ask(stream=True, rid="rq-2"), "every chunk has what is new")
    r.post(prefix + "generate_stop_token_stream", GENERATE, ask(stream=True, sampling=GREEDY | {"stop_token_ids": [3]}))
    body = {"model": "q", "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "logprobs": 1, "return_token_ids": True}
    r.post(prefix + "completions_stream", "/v1/completions", body | {"stream": True})
    running = r.start(GENERATE, long("over-an-update")).until_lines(20)
    r.quiet("POST", "/pause_generation", {"mode": "in_place"})
    r.quiet("POST", "/update_weights_from_disk", update(models, "small-2", "2", flush_cache=False))
    r.quiet("POST", "/continue_generation", {})
    r.keep(prefix + "update_running", running.join(), "its last chunk has the spans", STATUS)
    running = r.start(GENERATE, long("abort-me")).until_lines(10)
    r.quiet("POST", "/abort_request", {"rid": "abort-me"})
    r.keep(prefix + "abort_running", running.join(), "ended by its id", STATUS)
    scheduler = engine.process("sglang::scheduler")
    running = r.start(GENERATE, long("orphan")).until_lines(10)
    os.kill(scheduler, signal.SIGKILL)
    r.post("scheduler_killed_generate", GENERATE, ask(), "soon after", compare=STATUS, timeout_s=20)
    r.keep("scheduler_killed_running", running.join(), "the scheduler is killed meanwhile", STATUS)


def broken(r, models):
    """Weights that are no weights: half a file."""
    # Until the leader is gone it answers nobody; that was seen to take from some seconds to forty.
    r.post("update_broken", "/update_weights_from_disk", update(models, "broken", "2"), "the server dies of it",
           compare=STATUS, timeout_s=180)
