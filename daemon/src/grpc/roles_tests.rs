//! The store's door: who may write, what is answered, and what happens when the caller dies.
use super::*;
use crate::links::Via;
use crate::store::Options;
use crate::store::database::Commit;
use futures::FutureExt;
use robust_grouplog::Group;
use std::sync::{Condvar, Mutex};
use tempfile::TempDir;
use tonic::transport::server::Connected;

const A: Incarnation = Incarnation(1);
const B: Incarnation = Incarnation(2);
const T: TrajectoryId = TrajectoryId {
    batch: 1,
    group: 0,
    member: 0,
};

/// Commits wait while it is shut.
#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    waiting: AtomicU64,
    opened: Condvar,
}

impl Gate {
    fn shut(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let shut = self.shut.lock().unwrap();
        drop(self.opened.wait_while(shut, |shut| *shut).unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Gated(Box<dyn Commit>, Arc<Gate>);

impl Commit for Gated {
    fn commit(&mut self, tree: &sled::Tree, group: Group) -> Result<(), StoreError> {
        self.1.pass();
        self.0.commit(tree, group)
    }

    fn space(&self) -> std::io::Result<robust_ckpt::disk::Space> {
        self.0.space()
    }
}

struct Door {
    service: RoleHostService,
    leases: Leases,
    store: Store,
    told: mpsc::UnboundedReceiver<LinkEvent>,
    routed: mpsc::UnboundedReceiver<RouteEvent>,
    gate: Arc<Gate>,
    _dir: TempDir,
}

fn door() -> Door {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let wrap = |inner| Box::new(Gated(inner, Arc::clone(&gate))) as Box<dyn Commit>;
    let (store, _) = Store::open_with(dir.path(), Options::default(), wrap).unwrap();
    let (links, told) = mpsc::unbounded_channel();
    let (routes, routed) = mpsc::unbounded_channel::<RouteEvent>();
    let ways = (Tell::into_channel(&links), Tell::into_channel(&routes));
    let leases = Leases::default();
    let service = RoleHostService::new(ways, leases.clone(), store.clone(), 1);
    for incarnation in [A, B] {
        let here = Origin::Process(std::process::id());
        service
            .callers
            .linked(incarnation, LinkId(incarnation.0), here);
    }
    Door {
        service,
        leases,
        store,
        told,
        routed,
        gate,
        _dir: dir,
    }
}

/// Calls of this process, as the kernel names it to a socket's other end.
fn from_here<T>(call: T) -> Request<T> {
    let (one, _other) = tokio::net::UnixStream::pair().unwrap();
    let mut request = Request::new(call);
    request.extensions_mut().insert(one.connect_info());
    request
}

/// A call that comes through a node.
fn via<T>(node: &str, call: Request<T>) -> Request<T> {
    let mut request = Request::new(call.into_inner());
    request.extensions_mut().insert(Via(node.into()));
    request
}

fn span(ids: &[u32]) -> v1::Span {
    v1::Span {
        ids: ids.to_vec(),
        logprobs: vec![-0.5; ids.len()],
        version: 3,
    }
}

fn spans(by: Incarnation, offset: u32, ids: &[u32]) -> Request<v1::AppendSpansRequest> {
    from_here(v1::AppendSpansRequest {
        incarnation: by.0,
        trajectory: T.key(),
        prompt_ids: vec![1],
        turn: 0,
        offset,
        spans: vec![span(ids)],
    })
}

fn turn(by: Incarnation, ids: &[u32]) -> Request<v1::AppendTurnRequest> {
    let turn = v1::Turn {
        spans: vec![span(ids)],
        ..Default::default()
    };
    from_here(v1::AppendTurnRequest {
        incarnation: by.0,
        trajectory: T.key(),
        prompt_ids: vec![1],
        turn: Some(turn),
    })
}

fn end(by: Incarnation) -> Request<v1::FinishTrajectoryRequest> {
    from_here(v1::FinishTrajectoryRequest {
        incarnation: by.0,
        trajectory: T.key(),
        reward: 1.0,
        turns: 1,
        answer: String::new(),
    })
}

impl Door {
    async fn code(&self, request: Request<v1::AppendSpansRequest>) -> tonic::Code {
        let answer = self.service.append_spans(request).await;
        answer.map_or_else(|status| status.code(), |_| tonic::Code::Ok)
    }

    fn running(&self) -> Vec<v1::Span> {
        let stored = self.store.trajectory(T).unwrap();
        stored.unwrap_or_default().running
    }
}

#[tokio::test]
async fn tokens_are_taken_from_the_holder_twice_but_not_with_a_gap_nor_from_an_older_holder() {
    use tonic::Code::{FailedPrecondition, InvalidArgument, Ok as Acknowledged};
    let door = door();
    assert_eq!(door.code(spans(A, 0, &[5])).await, FailedPrecondition);
    door.leases.grant(A, T, 1).settling.over().await;
    assert_eq!(door.code(spans(A, 0, &[5, 6])).await, Acknowledged);
    assert_eq!(door.code(spans(A, 0, &[5, 6])).await, Acknowledged);
    assert_eq!(door.code(spans(A, 0, &[5, 7])).await, InvalidArgument);
    assert_eq!(door.code(spans(A, 3, &[8])).await, InvalidArgument);
    assert_eq!(door.code(spans(A, 2, &[])).await, InvalidArgument);
    let mut uneven = spans(A, 2, &[7, 8]);
    uneven.get_mut().spans[0].logprobs.pop();
    assert_eq!(door.code(uneven).await, InvalidArgument);
    door.leases.grant(B, T, 1).settling.over().await;
    // Late, from the lease before.
    assert_eq!(door.code(spans(A, 2, &[7])).await, FailedPrecondition);
    assert_eq!(door.code(spans(B, 2, &[9])).await, Acknowledged);
    assert_eq!(door.running(), [span(&[5, 6, 9])]);
}

#[tokio::test]
async fn of_tokens_that_come_together_each_part_is_judged_for_itself() {
    let door = door();
    door.leases.grant(A, T, 1).settling.over().await;
    let part = |by, trajectory, ids: &[u32]| v1::AppendSpansRequest {
        trajectory,
        ..spans(by, 0, ids).into_inner()
    };
    let batch = |parts| {
        from_here(v1::SpansBatch {
            incarnation: A.0,
            parts,
        })
    };
    // The second is of a trajectory that it does not hold, the third says that somebody else sends it: the call's word counts.
    let parts = vec![
        part(A, T.key(), &[5]),
        part(A, T.key() + 1, &[5]),
        part(B, T.key(), &[5]),
    ];
    let replies = door.service.append_spans_batch(batch(parts)).await.unwrap();
    let replies = replies.into_inner().replies;
    let codes: Vec<tonic::Code> = replies.iter().map(|reply| reply.code.into()).collect();
    use tonic::Code::{FailedPrecondition, Ok as Acknowledged};
    assert_eq!(codes, [Acknowledged, FailedPrecondition, Acknowledged]);
    assert_eq!(door.running(), [span(&[5])]);
    let many = vec![part(A, T.key(), &[5]); 5000];
    let refused = door
        .service
        .append_spans_batch(batch(many))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn a_turn_that_contradicts_its_stored_tokens_is_refused_and_an_end_in_its_middle_too() {
    let door = door();
    door.leases.grant(A, T, 1).settling.over().await;
    door.service
        .append_spans(spans(A, 0, &[5, 6]))
        .await
        .unwrap();
    let refused = door
        .service
        .append_turn(turn(A, &[5, 7]))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    let open = door.service.finish_trajectory(end(A)).await.unwrap_err();
    assert_eq!(open.code(), tonic::Code::InvalidArgument);
    door.service.append_turn(turn(A, &[5, 6, 7])).await.unwrap();
    assert_eq!(door.running(), []);
    door.service.finish_trajectory(end(A)).await.unwrap();
}

/// Begins a request, has its caller die while it is being written, and hands the trajectory on.
async fn dies_meanwhile(
    door: &Door,
    request: impl Future<Output = Result<Response<v1::Ack>, Status>> + Send + 'static,
) {
    door.gate.shut(true);
    let call = tokio::spawn(request);
    while door.gate.waiting.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    assert!(call.await.is_err());
    let mut settled = std::pin::pin!(door.leases.grant(B, T, 1).settling.over());
    for _ in 0..100 {
        assert!(
            settled.as_mut().now_or_never().is_none(),
            "it settled too early"
        );
        tokio::task::yield_now().await;
    }
    door.gate.shut(false);
    settled.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trajectory_settles_only_when_what_its_dead_holder_wrote_is_durable() {
    let tokens = door();
    tokens.leases.grant(A, T, 1).settling.over().await;
    let service = tokens.service.clone();
    dies_meanwhile(&tokens, async move {
        service.append_spans(spans(A, 0, &[5, 6])).await
    })
    .await;
    assert_eq!(tokens.running(), [span(&[5, 6])]);

    let mut whole = door();
    whole.leases.grant(A, T, 1).settling.over().await;
    let service = whole.service.clone();
    dies_meanwhile(&whole, async move {
        service.append_turn(turn(A, &[5, 6])).await
    })
    .await;
    assert_eq!(whole.store.trajectory(T).unwrap().unwrap().turns.len(), 1);

    // The end of what A left, by B: the driver hears of it before the next could be given it.
    let service = whole.service.clone();
    dies_meanwhile(
        &whole,
        async move { service.finish_trajectory(end(B)).await },
    )
    .await;
    assert!(matches!(
        whole.told.try_recv(),
        Ok(LinkEvent::Finished { trajectory: T, .. })
    ));
}

/// A compromised role, or node, writes as an agent that it is not.
#[tokio::test]
async fn nobody_writes_ends_or_routes_as_an_agent_that_he_is_not() {
    let mut door = door();
    door.leases.grant(A, T, 1).settling.over().await;
    let denied = |status: Status| {
        assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status}");
        assert!(
            status.message().contains("acts for itself only"),
            "{status}"
        );
    };
    let service = door.service.clone();
    // The agent runs here: no node speaks for it.
    denied(
        service
            .append_spans(via("b", spans(A, 0, &[5])))
            .await
            .unwrap_err(),
    );
    denied(
        service
            .append_turn(via("b", turn(A, &[5])))
            .await
            .unwrap_err(),
    );
    denied(
        service
            .finish_trajectory(via("b", end(A)))
            .await
            .unwrap_err(),
    );
    let wanted = || v1::RouteRequest {
        incarnation: A.0,
        trajectory: T.key(),
    };
    denied(
        service
            .route(via("b", from_here(wanted())))
            .await
            .unwrap_err(),
    );
    // It is that process, says its link: this one is another.
    let mut other = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let there = Origin::Process(other.id());
    service.callers.linked(A, LinkId(9), there);
    denied(service.append_spans(spans(A, 0, &[5])).await.unwrap_err());
    denied(service.finish_trajectory(end(A)).await.unwrap_err());
    other.kill().unwrap();
    other.wait().unwrap();
    // It runs on node b: not on c, and not here.
    service
        .callers
        .linked(A, LinkId(10), Origin::Node(Via("b".into())));
    denied(
        service
            .append_turn(via("c", turn(A, &[5])))
            .await
            .unwrap_err(),
    );
    denied(service.append_turn(turn(A, &[5])).await.unwrap_err());
    assert!(door.store.trajectory(T).unwrap().is_none());
    assert!(door.told.try_recv().is_err() && door.routed.try_recv().is_err());
    service.append_turn(via("b", turn(A, &[5]))).await.unwrap();
    // A link that broke is made anew first.
    service.callers.closed(A, LinkId(10));
    let away = service
        .finish_trajectory(via("b", end(A)))
        .await
        .unwrap_err();
    assert_eq!(away.code(), tonic::Code::Unavailable);
    // Nobody says where a call of no origin comes from.
    let nowhere = Request::new(end(A).into_inner());
    let nowhere = service.finish_trajectory(nowhere).await.unwrap_err();
    assert_eq!(nowhere.code(), tonic::Code::PermissionDenied);
}

#[tokio::test]
async fn a_route_is_given_back_by_whom_it_was_given_to() {
    let mut door = door();
    door.leases.grant(A, T, 1).settling.over().await;
    let service = door.service.clone();
    let wanted = from_here(v1::RouteRequest {
        incarnation: A.0,
        trajectory: T.key(),
    });
    let routing = tokio::spawn(async move { service.route(wanted).await });
    let Some(RouteEvent::Wanted { ticket, answer, .. }) = door.routed.recv().await else {
        unreachable!("no route was asked for");
    };
    let reply = v1::RouteReply {
        ticket,
        ..Default::default()
    };
    answer.send(reply).unwrap();
    routing.await.unwrap().unwrap();
    let release = |of: Incarnation, ticket| v1::ReleaseRouteRequest {
        ticket,
        broken: true,
        incarnation: of.0,
    };
    let service = door.service.clone();
    let as_b = from_here(release(B, ticket));
    service.release_route(as_b).await.unwrap();
    let through_b = via("b", from_here(release(A, ticket)));
    service.release_route(through_b).await.unwrap_err();
    // One of the router's.
    let other = from_here(release(A, ticket + 1));
    service.release_route(other).await.unwrap();
    assert!(door.routed.try_recv().is_err(), "it is A's still");
    let own = from_here(release(A, ticket));
    service.release_route(own).await.unwrap();
    let released = door.routed.try_recv().unwrap();
    assert!(matches!(
        released,
        RouteEvent::Released { broken: true, .. }
    ));
}

#[tokio::test]
async fn a_link_is_of_the_process_that_it_names() {
    let mut door = door();
    let hello = |pid| v1::Hello {
        incarnation: A.0,
        pid,
        ..Default::default()
    };
    let me = Origin::Process(std::process::id());
    let refused = door.service.admit(hello(1), LinkId(20), me.clone()).await;
    assert_eq!(refused.err().unwrap().code(), tonic::Code::PermissionDenied);
    assert!(
        door.told.try_recv().is_err(),
        "the driver does not hear of it"
    );
    let service = door.service.clone();
    let own = hello(std::process::id());
    let admitted = tokio::spawn(async move { service.admit(own, LinkId(21), me).await.is_ok() });
    let Some(LinkEvent::Attach {
        admitted: answer,
        via,
        ..
    }) = door.told.recv().await
    else {
        unreachable!("no link");
    };
    assert_eq!(via, None);
    answer.send(Ok(())).unwrap();
    assert!(admitted.await.unwrap());
}

/// Of a machine of which the kernel does not say which process calls.
#[tokio::test]
async fn every_method_for_roles_asks_who_calls_before_all_else() {
    use http_body_util::BodyExt as _;
    use tonic::codegen::{Service as _, http};
    let temp = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(temp.path()).unwrap();
    let (links, mut linked) = mpsc::unbounded_channel::<LinkEvent>();
    let (routes, mut routed) = mpsc::unbounded_channel::<RouteEvent>();
    let ways = (Tell::into_channel(&links), Tell::into_channel(&routes));
    let service = RoleHostService::new(ways, Leases::default(), store, 1);
    let mut server = v1::role_host_server::RoleHostServer::new(service);
    let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/robust/v1/role.proto");
    let text = std::fs::read_to_string(proto).unwrap();
    let methods = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("rpc "));
    let methods: Vec<&str> = methods
        .map(|line| line.split('(').next().unwrap())
        .collect();
    assert!(methods.len() >= 7, "{methods:?}");
    for method in methods {
        // gRPC's frame: as it is, and no bytes.
        let message = http_body_util::Full::new(bytes::Bytes::from_static(&[0; 5]));
        let request = http::Request::post(format!("/robust.v1.RoleHost/{method}"))
            .header("content-type", "application/grpc")
            .body(tonic::body::Body::new(message))
            .unwrap();
        let answer = server.call(request).await.unwrap();
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::PermissionDenied, "{method}");
        assert!(status.message().contains("which process"), "{status}");
        answer.into_body().collect().await.unwrap();
    }
    assert!(linked.try_recv().is_err() && routed.try_recv().is_err());
}
