//! Which requests are passed on. What is not named here is not.
use super::failure::Failure;
use axum::http::Method;
use robust_engine::Kind;

/// What both makes and the built-in rollout say of themselves, if they do.
const TOLD: [&str; 3] = ["/v1/models", "/model_info", "/get_model_info"];
/// The routes that generate, beside `/generate`, which every engine or its shim has.
const OPENAI: [&str; 2] = ["/v1/completions", "/v1/chat/completions"];
/// vLLM's own.
const TOKENS: &str = "/inference/v1/generate";

/// How routes begin that change an engine; others that do are not passed on either, without saying
/// why.
const CHANGES: [&str; 31] = [
    "/abort_request",
    "/begin_weight_update",
    "/collective_rpc",
    "/continue_generation",
    "/destroy_weights_update_group",
    "/end_weight_update",
    "/fault_tolerance",
    "/finish_weight_update",
    "/flush_cache",
    "/inference/v1/abort_requests",
    "/init_weight",
    "/load_lora_adapter",
    "/pause",
    "/release_",
    "/reset_",
    "/resume",
    "/scale_elastic_ep",
    "/set_internal_state",
    "/shutdown",
    "/sleep",
    "/start_draft_weight_update",
    "/start_profile",
    "/start_weight_update",
    "/stop_profile",
    "/unload_lora_adapter",
    "/update_weight",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/wake_up",
    "/weight_checker",
    "/weights_checker",
];

fn generating(kind: Kind) -> Vec<&'static str> {
    let mut paths = vec!["/generate"];
    if matches!(kind, Kind::Sglang | Kind::Vllm) {
        paths.extend(OPENAI);
    }
    if kind == Kind::Vllm {
        paths.push(TOKENS);
    }
    paths
}

/// Whether a request is passed on to engines of this make.
pub(super) fn check(kind: Kind, method: &Method, path: &str) -> Result<(), Failure> {
    let passed = match *method {
        Method::POST => generating(kind).contains(&path),
        // As both engines do, SGLang's own route takes it.
        Method::PUT => path == "/generate",
        Method::GET => TOLD.contains(&path),
        _ => false,
    };
    match passed {
        true => Ok(()),
        false if CHANGES.iter().any(|begin| path.starts_with(begin)) => {
            let path = path.to_owned();
            Err(Failure::Changes { path })
        }
        false => Err(Failure::NoRoute {
            method: method.to_string(),
            path: path.to_owned(),
            engines: kind.proper_name(),
            routes: routes(kind),
        }),
    }
}

fn routes(kind: Kind) -> String {
    let generating = generating(kind).join(", ");
    format!("POST {generating}; GET {}", TOLD.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(kind: Kind, method: Method, path: &str) -> Option<String> {
        check(kind, &method, path).err().map(|no| no.to_string())
    }

    #[test]
    fn only_what_the_jobs_engines_have_is_passed_on_and_others_are_told_what_they_have() {
        for kind in Kind::ALL {
            assert_eq!(status(kind, Method::POST, "/generate"), None);
            assert_eq!(status(kind, Method::GET, "/v1/models"), None);
            let foreign = kind != Kind::Robust;
            let chat = status(kind, Method::POST, "/v1/chat/completions");
            assert_eq!(chat.is_none(), foreign);
            let tokens = status(kind, Method::POST, "/inference/v1/generate");
            assert_eq!(tokens.is_none(), kind == Kind::Vllm);
        }
        assert_eq!(
            status(Kind::Robust, Method::POST, "/v1/completions").unwrap_or_default(),
            "POST /v1/completions is not passed on; to the built-in rollout of this job go POST \
             /generate; GET /v1/models, /model_info, /get_model_info"
        );
        for path in [
            "/",
            "/generate/",
            "//generate",
            "/v1/models/../pause",
            "/metrics",
        ] {
            assert!(status(Kind::Sglang, Method::POST, path).is_some(), "{path}");
        }
    }

    #[test]
    fn what_changes_engines_is_refused_with_the_reason() {
        for path in [
            "/pause_generation",
            "/pause",
            "/update_weights_from_disk",
            "/update_weights",
            "/flush_cache",
            "/abort_request",
            "/abort_requests",
            "/collective_rpc",
            "/release_memory_occupation",
            "/wake_up",
        ] {
            for method in [Method::GET, Method::POST, Method::PUT] {
                let no = check(Kind::Vllm, &method, path);
                assert!(
                    matches!(no, Err(Failure::Changes { .. })),
                    "{method} {path}"
                );
            }
        }
    }
}
