//! As much of a daemon as a console that is only looked at needs: `Watch`, `Phases` and `Events`.
use super::job;
use robust_proto::v1;
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio_stream::wrappers::{IntervalStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::server::{Grpc, NamedService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

#[derive(Clone)]
struct Played {
    instances: u32,
}

impl NamedService for Played {
    const NAME: &'static str = "robust.v1.Control";
}

impl Service<http::Request<Body>> for Played {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let instances = self.instances;
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/robust.v1.Control/Watch" => {
                    let watch = move |request: Request<v1::WatchRequest>| {
                        let every = request.into_inner().interval_ms;
                        async move { Ok(Response::new(statuses(instances, every))) }
                    };
                    let mut grpc = Grpc::new(ProstCodec::default());
                    grpc.server_streaming(tower::service_fn(watch), request)
                        .await
                }
                "/robust.v1.Control/Phases" => {
                    let phases = move |request: Request<v1::PhasesRequest>| {
                        let every = request.into_inner().interval_ms;
                        async move { Ok(Response::new(phases(instances, every))) }
                    };
                    let mut grpc = Grpc::new(ProstCodec::default());
                    grpc.server_streaming(tower::service_fn(phases), request)
                        .await
                }
                "/robust.v1.Control/Events" => {
                    let events = |_: Request<v1::EventsRequest>| async {
                        let stored = tokio_stream::iter(job::events().map(Ok));
                        Ok(Response::new(stored.chain(tokio_stream::pending())))
                    };
                    let mut grpc = Grpc::new(ProstCodec::default());
                    grpc.server_streaming(tower::service_fn(events), request)
                        .await
                }
                other => Status::unimplemented(format!("{other} is not played")).into_http(),
            })
        })
    }
}

fn statuses(
    instances: u32,
    every_ms: u32,
) -> impl Stream<Item = Result<v1::Status, Status>> + Send {
    beats(every_ms).map(move |beat| Ok(job::status(instances, beat)))
}

fn phases(
    instances: u32,
    every_ms: u32,
) -> impl Stream<Item = Result<v1::PhasesPart, Status>> + Send {
    let part = move |beat| v1::PhasesPart {
        spans: job::phases(instances, beat),
    };
    beats(every_ms).map(move |beat| Ok(part(beat)))
}

/// 1, 2, .. as time goes by.
fn beats(every_ms: u32) -> impl Stream<Item = u64> + Send {
    let every = Duration::from_millis(u64::from(every_ms.max(1)));
    let mut beat = 0;
    IntervalStream::new(tokio::time::interval(every)).map(move |_| {
        beat += 1;
        beat
    })
}

/// Serves on `DIR/control.sock` until the task is dropped.
pub fn serve(dir: &Path, instances: u32) -> std::io::Result<tokio::task::JoinHandle<()>> {
    let listener = UnixListener::bind(dir.join("control.sock"))?;
    Ok(tokio::spawn(async move {
        let server = tonic::transport::Server::builder().add_service(Played { instances });
        // It ends with the bench; a connection that breaks is the console's to report.
        let _ = server
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await;
    }))
}
