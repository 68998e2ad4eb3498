//! A hybrid's slot lent and taken back, before an engine that writes down what it is asked.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use robust_engine::{Dialect, Kind, SWITCH_HEADER};
use robust_http::Door;
use robust_identity::EngineKey;
use robust_role::pull::Engine;
use robust_role::{Busy, LinkConfig};
use robust_shared::ids::{Role, WeightVersion};
use robust_shared::job::{Job, RolloutCommand, Swap};
use robust_shared::weights::TensorSpec;
use robust_shim::client::Client;
use robust_shim::connect::Address;
use robust_shim::front::{self, Bounds, Front};
use robust_shim::gate::Gate;
use robust_shim::slot::{self, Slot};
use robust_shim::state::{State as Standing, Weights};
use robust_shim::weights::{Files, Loader, Readers, Settings};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Beyond anything that a sound machine needs.
const DEADLINE: Duration = Duration::from_secs(30);

/// What the shim's clients show.
const KEY: &str = "the key";

fn shown(key: &str) -> Option<HeaderValue> {
    Some(HeaderValue::from_str(&format!("Bearer {key}")).unwrap())
}

/// What an engine is asked, and the route of it that never answers, or refuses.
#[derive(Default)]
struct Told {
    asked: Mutex<Vec<String>>,
    silent: Option<&'static str>,
    refuses: Option<&'static str>,
}

async fn answer(State(told): State<Arc<Told>>, request: Request) -> Response {
    let target = request.uri().path_and_query().unwrap().to_string();
    told.asked.lock().unwrap().push(target.clone());
    if told.silent.is_some_and(|of| target.starts_with(of)) {
        std::future::pending::<()>().await;
    }
    if told.refuses.is_some_and(|of| target.starts_with(of)) {
        return (StatusCode::NOT_FOUND, r#"{"detail": "Not Found"}"#).into_response();
    }
    match target.as_str() {
        "/weight_info" | "/model_info" => r#"{"weight_version": "7"}"#,
        _ => r#"{"success": true}"#,
    }
    .into_response()
}

/// A shim before such an engine, which is up and serves nothing yet.
struct Shim {
    told: Arc<Told>,
    front: Front,
    addr: SocketAddr,
    loader: Arc<Loader>,
    given_up: mpsc::UnboundedReceiver<String>,
    buffer: Arc<robust_transport::Buffer>,
    folder: TempDir,
}

fn command(kind: &str, more: &str) -> RolloutCommand {
    let text = format!(
        "[data]\nprompts='p'\ntokenizer='t'\n[job]\nmode='semi-sync'\n[rollout.command]\n\
         kind='{kind}'\nargv=['x','{{port}}','--enable-sleep-mode','--enable-memory-saver']\n\
         verify=['version']\n{more}"
    );
    let job = Job::parse(&text, Path::new("job.toml")).unwrap();
    job.rollout.command.unwrap()
}

fn link(folder: &Path) -> robust_role::Link {
    let config = LinkConfig {
        socket: folder.join("nobody"),
        role: Role::Hybrid,
        index: 0,
        incarnation: 1,
        generation: 0,
        sample_interval: DEADLINE,
        busy: Busy::told_by(|| Duration::ZERO),
        daemon_grace: DEADLINE,
        welcome_within: DEADLINE,
        end_within: None,
    };
    let hello = robust_proto::v1::Hello::default;
    robust_role::start(&Handle::current(), config, hello, |_, _| Ok(())).0
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

impl Shim {
    async fn start(kind: Kind, more: &str, told: Told) -> Self {
        let (folder, told) = (tempfile::tempdir().unwrap(), Arc::new(told));
        let (engine, at) = listener().await;
        let router = axum::Router::new().fallback(answer);
        let router = router.with_state(Arc::clone(&told));
        tokio::spawn(async move { axum::serve(engine, router).await });
        let command = command(kind.as_str(), more);
        let (words, heard) = slot::words();
        let front = Front {
            client: Client::new(Address::Tcp(at), None),
            gate: Arc::new(Gate::new(link(folder.path()))),
            command: Arc::new(command.clone()),
            dialect: Arc::new(OnceLock::from(Dialect::newest(kind))),
            bounds: Bounds {
                vocabulary: 10,
                longest: 10,
            },
            words,
        };
        let settings = Settings {
            command,
            swap: Swap::Step,
        };
        let (gives_up, given_up) = mpsc::unbounded_channel();
        let loader = Loader::new(&front, settings, gives_up.clone(), Handle::current());
        let loader = Arc::new(loader);
        let model = folder.path().join("model");
        std::fs::create_dir(&model).unwrap();
        let tensors = [TensorSpec {
            name: "a".into(),
            dtype: "F32".into(),
            shape: vec![1],
            offset: 0,
            bytes: 4,
        }];
        let files = Files::new(
            &folder.path().join("weights"),
            &model,
            &tensors,
            Readers::Owner,
        )
        .unwrap();
        let [buffer, _] = files.buffers();
        loader.lie_in(files);
        let mode = front.command.hybrid_mode();
        let slot = Slot::new(Arc::clone(&loader), Arc::clone(&front.gate), mode, gives_up);
        tokio::spawn(slot.obey(heard));
        let (socket, addr) = listener().await;
        let socket = socket.into_std().unwrap();
        let door = Door::new([EngineKey::known(KEY)], "its key").with_foreign_bodies();
        tokio::spawn(front::serve(
            socket,
            robust_http::Wire::Plain,
            door,
            front.clone(),
        ));
        front.gate.change(Standing::ready);
        Self {
            told,
            front,
            addr,
            loader,
            given_up,
            buffer,
            folder,
        }
    }

    async fn post(&self, path: &str, by_the_controller: bool) -> (u16, bool) {
        let mut headers = HeaderMap::new();
        if by_the_controller {
            headers.insert(SWITCH_HEADER, HeaderValue::from(1));
        }
        let client = Client::new(Address::Tcp(self.addr), shown(KEY));
        let asked = client.pass(Method::POST, path, &headers, Bytes::from("{}"));
        let reply = tokio::time::timeout(DEADLINE, asked)
            .await
            .unwrap()
            .unwrap();
        let again = reply.headers().contains_key("retry-after");
        (reply.status().as_u16(), again)
    }

    async fn lend(&self) {
        assert_eq!(self.post("/pause_generation", true).await, (200, false));
    }

    async fn take_back(&self) {
        assert_eq!(self.post("/continue_generation", true).await, (200, false));
    }

    /// Version 7 was pulled.
    async fn swap(&self) {
        let (loader, buffer) = (Arc::clone(&self.loader), Arc::clone(&self.buffer));
        let swapped = move || loader.swap(WeightVersion(7), &buffer);
        tokio::task::spawn_blocking(swapped).await.unwrap().unwrap();
    }

    /// What the engine was asked since this was asked last.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.asked.lock().unwrap())
    }

    async fn reason(&mut self) -> String {
        let reason = tokio::time::timeout(DEADLINE, self.given_up.recv());
        reason.await.unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vllm_sleeps_and_its_weights_come_before_its_keys_and_values() {
    let shim = Shim::start(Kind::Vllm, "", Told::default()).await;
    shim.lend().await;
    assert_eq!(
        shim.asked(),
        ["/pause?mode=abort", "/sleep?level=1&mode=abort"]
    );
    // Both words may come twice.
    shim.lend().await;
    shim.swap().await;
    assert_eq!(shim.asked(), [""; 0], "the version waits");
    shim.take_back().await;
    let state = shim.front.gate.state();
    assert_eq!(
        (state.weights(), state.is_lent()),
        (Weights::Serving(7), false)
    );
    let woken = [
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/update_weight_version",
        "/wake_up?tags=kv_cache",
        "/resume",
        "/weight_info",
    ];
    assert_eq!(shim.asked(), woken);
    shim.take_back().await;
    assert_eq!(shim.asked(), [""; 0]);
    // Without a newer version the same one is loaded again: nobody knows what a waking leaves.
    shim.lend().await;
    shim.asked();
    shim.take_back().await;
    assert_eq!(shim.asked(), woken);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sglang_is_paused_and_emptied_before_it_gives_its_memory_back() {
    let shim = Shim::start(Kind::Sglang, "", Told::default()).await;
    shim.lend().await;
    let asleep = [
        "/pause_generation",
        "/flush_cache",
        "/release_memory_occupation",
    ];
    assert_eq!(shim.asked(), asleep);
    shim.swap().await;
    shim.take_back().await;
    let woken = [
        "/resume_memory_occupation",
        "/update_weights_from_disk",
        "/resume_memory_occupation",
        "/continue_generation",
        "/model_info",
    ];
    assert_eq!(shim.asked(), woken);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_keeps_its_memory_is_only_paused() {
    let shim = Shim::start(Kind::Vllm, "hybrid='pause'\n", Told::default()).await;
    shim.lend().await;
    assert_eq!(shim.asked(), ["/pause?mode=abort"]);
    shim.take_back().await;
    assert_eq!(shim.asked(), ["/resume"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_slot_is_lent_clients_are_sent_elsewhere_and_nothing_reaches_the_engine() {
    for kind in [Kind::Vllm, Kind::Sglang] {
        let shim = Shim::start(kind, "", Told::default()).await;
        shim.lend().await;
        shim.asked();
        for path in [
            "/generate",
            "/v1/completions",
            "/sleep",
            "/wake_up",
            "/release_memory_occupation",
            "/resume_memory_occupation",
            "/pause_generation",
            "/continue_generation",
            "/flush_cache",
            "/collective_rpc",
            "/update_weights_from_disk",
        ] {
            assert_eq!(shim.post(path, false).await, (503, true), "{path}");
        }
        assert_eq!(shim.asked(), [""; 0]);
        let client = Client::new(Address::Tcp(shim.addr), shown(KEY));
        let none = HeaderMap::new();
        let probe = client.pass(Method::GET, "/health_generate", &none, Bytes::new());
        assert_eq!(probe.await.unwrap().status(), 200, "it is not stuck");
        assert_eq!(shim.asked(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_refuses_to_sleep_is_given_up_with_its_words() {
    let told = Told {
        refuses: Some("/sleep"),
        ..Told::default()
    };
    let mut shim = Shim::start(Kind::Vllm, "", told).await;
    let words = shim.front.words.clone();
    tokio::spawn(async move { words.lend().await });
    assert_eq!(
        shim.reason().await,
        "the engine does not leave the slot to its rank: POST /sleep?level=1&mode=abort was \
         refused: 404: Not Found"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_does_not_wake_in_time_is_given_up() {
    let told = Told {
        silent: Some("/wake_up"),
        ..Told::default()
    };
    let mut shim = Shim::start(Kind::Vllm, "load_s=0.2\n", told).await;
    shim.lend().await;
    shim.swap().await;
    let words = shim.front.words.clone();
    tokio::spawn(async move { words.take_back().await });
    let reason = shim.reason().await;
    let said = "the engine does not go on with its memory again:";
    assert!(reason.starts_with(said), "{reason}");
    assert_eq!(shim.front.gate.state().weights(), Weights::Stale);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_a_client_put_to_sleep_is_loaded_anew_when_it_is_woken() {
    let shim = Shim::start(Kind::Vllm, "", Told::default()).await;
    shim.lend().await;
    shim.swap().await;
    shim.take_back().await;
    shim.asked();
    assert_eq!(shim.post("/sleep", false).await.0, 200);
    assert_eq!(shim.front.gate.state().weights(), Weights::Stale);
    assert_eq!(shim.post("/wake_up?tags=weights", false).await.0, 200);
    assert_eq!(shim.post("/wake_up?tags=kv_cache", false).await.0, 200);
    let entered = tokio::time::timeout(DEADLINE, async {
        loop {
            if let Ok(entered) = shim.front.gate.enter().await {
                return entered;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(entered.await.unwrap().version(), 7);
    let asked = shim.asked();
    assert!(asked.contains(&"/collective_rpc".to_owned()), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_starting_gives_the_slot_at_once_and_sleeps_when_it_is_up() {
    let told = Told::default();
    let shim = Shim::start(Kind::Vllm, "", told).await;
    let (words, heard) = slot::words();
    let gate = Arc::new(Gate::new(link(shim.folder.path())));
    let front = Front {
        gate: Arc::clone(&gate),
        words: words.clone(),
        ..shim.front.clone()
    };
    let settings = Settings {
        command: (*front.command).clone(),
        swap: Swap::Step,
    };
    let (gives_up, _given_up) = mpsc::unbounded_channel();
    let loader = Loader::new(&front, settings, gives_up.clone(), Handle::current());
    let mode = front.command.hybrid_mode();
    tokio::spawn(Slot::new(Arc::new(loader), Arc::clone(&gate), mode, gives_up).obey(heard));
    words.lend().await;
    assert_eq!(shim.asked(), [""; 0]);
    gate.change(Standing::ready);
    words.up();
    // The answer to a second word comes after what the first led to.
    words.lend().await;
    assert_eq!(
        shim.asked(),
        ["/pause?mode=abort", "/sleep?level=1&mode=abort"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_without_the_key_moves_a_slot_or_reaches_the_engine() {
    let shim = Shim::start(Kind::Vllm, "", Told::default()).await;
    let none = HeaderMap::new();
    for key in [None, shown("another key")] {
        let client = Client::new(Address::Tcp(shim.addr), key);
        let headers =
            HeaderMap::from_iter([(HeaderName::from_static(SWITCH_HEADER), HeaderValue::from(1))]);
        let asked = [
            "/pause_generation",
            "/generate",
            "/v1/completions",
            "/collective_rpc",
            "/update_weights",
            "/abort_request",
            "/sleep?level=2",
        ];
        for path in asked {
            let body = Bytes::from("{}");
            let reply = client.pass(Method::POST, path, &headers, body).await;
            assert_eq!(reply.unwrap().status(), StatusCode::UNAUTHORIZED, "{path}");
        }
        for path in ["/metrics", "/health_generate", "/v1/models"] {
            let reply = client.pass(Method::GET, path, &none, Bytes::new());
            assert_eq!(reply.await.unwrap().status(), StatusCode::UNAUTHORIZED);
        }
        let health = client.pass(Method::GET, "/health", &none, Bytes::new());
        assert_eq!(health.await.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(shim.asked(), [""; 0], "not even a token for the health");
    assert!(!shim.front.gate.state().is_lent());
}
