//! As much of a daemon as a console that is only looked at needs: `Watch`, `Phases` and `Events`.
use super::job;
use robust_proto::v1;
use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};
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
    /// When the job began: its streams agree on what time it is.
    begun: Instant,
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
        let Played { instances, begun } = *self;
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/robust.v1.Control/Watch" => {
                    let watch = move |request: Request<v1::WatchRequest>| {
                        let every = request.into_inner().interval_ms;
                        async move { Ok(Response::new(statuses(instances, begun, every))) }
                    };
                    let mut grpc = Grpc::new(ProstCodec::default());
                    grpc.server_streaming(tower::service_fn(watch), request)
                        .await
                }
                "/robust.v1.Control/Phases" => {
                    let phases = move |request: Request<v1::PhasesRequest>| {
                        let every = request.into_inner().interval_ms;
                        async move { Ok(Response::new(phases(instances, begun, every))) }
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
    begun: Instant,
    every_ms: u32,
) -> impl Stream<Item = Result<v1::Status, Status>> + Send {
    beats(begun, every_ms).map(move |beat| Ok(job::status(instances, beat)))
}

fn phases(
    instances: u32,
    begun: Instant,
    every_ms: u32,
) -> impl Stream<Item = Result<v1::PhasesPart, Status>> + Send {
    let mut told = beat(begun);
    beats(begun, every_ms).map(move |now| {
        let ended = (told..now).map(|before| job::phases(instances, before + 1));
        let spans = ended.flatten().collect();
        told = now;
        Ok(v1::PhasesPart { spans })
    })
}

/// The job's beat whenever one is asked for.
fn beats(begun: Instant, every_ms: u32) -> impl Stream<Item = u64> + Send {
    let every = Duration::from_millis(u64::from(every_ms.max(1)));
    IntervalStream::new(tokio::time::interval(every)).map(move |_| beat(begun))
}

fn beat(begun: Instant) -> u64 {
    begun.elapsed().as_millis() as u64 / job::EVERY_MS + 1
}

/// Serves on `DIR/control.sock` until the task is dropped.
pub fn serve(dir: &Path, instances: u32) -> std::io::Result<tokio::task::JoinHandle<()>> {
    let listener = UnixListener::bind(dir.join("control.sock"))?;
    Ok(tokio::spawn(async move {
        let server = tonic::transport::Server::builder().add_service(Played {
            instances,
            begun: Instant::now(),
        });
        // It ends with the bench; a connection that breaks is the console's to report.
        let _ = server
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await;
    }))
}
