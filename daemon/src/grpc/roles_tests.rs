//! The store's door: who may write, what is answered, and what happens when the caller dies.
use super::*;
use crate::store::Options;
use crate::store::database::Commit;
use futures::FutureExt;
use std::sync::{Condvar, Mutex};
use tempfile::TempDir;

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
    fn commit(&mut self, tree: &sled::Tree, batch: sled::Batch) -> Result<(), StoreError> {
        self.1.pass();
        self.0.commit(tree, batch)
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
    gate: Arc<Gate>,
    _dir: TempDir,
}

fn door() -> Door {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let wrap = |inner| Box::new(Gated(inner, Arc::clone(&gate))) as Box<dyn Commit>;
    let (store, _) = Store::open_with(dir.path(), Options::default(), wrap).unwrap();
    let (links, told) = mpsc::unbounded_channel();
    let (routes, _) = mpsc::unbounded_channel::<RouteEvent>();
    let ways = (Tell::into_channel(&links), Tell::into_channel(&routes));
    let leases = Leases::default();
    let service = RoleHostService::new(ways, leases.clone(), store.clone(), 1);
    Door {
        service,
        leases,
        store,
        told,
        gate,
        _dir: dir,
    }
}

fn span(ids: &[u32]) -> v1::Span {
    v1::Span {
        ids: ids.to_vec(),
        logprobs: vec![-0.5; ids.len()],
        version: 3,
    }
}

fn spans(by: Incarnation, offset: u32, ids: &[u32]) -> Request<v1::AppendSpansRequest> {
    Request::new(v1::AppendSpansRequest {
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
    Request::new(v1::AppendTurnRequest {
        incarnation: by.0,
        trajectory: T.key(),
        prompt_ids: vec![1],
        turn: Some(turn),
    })
}

fn end(by: Incarnation) -> Request<v1::FinishTrajectoryRequest> {
    Request::new(v1::FinishTrajectoryRequest {
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
