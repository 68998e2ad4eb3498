//! Where the fake is asked.
use super::Fake;
use robust_identity::{Door, Holders};
use robust_proto::v1::control_server::ControlServer;
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};

/// Serves on `DIR/control.sock` until dropped, then breaks every connection as a killed daemon
/// does.
pub struct Server(Option<Runtime>);

impl Server {
    pub fn start(dir: &Path, fake: &Fake) -> Server {
        let runtime = runtime();
        let socket = dir.join("control.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = runtime.block_on(async { UnixListener::bind(&socket).unwrap() });
        let service = ControlServer::new(fake.clone());
        runtime.spawn(async move {
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(UnixListenerStream::new(listener))
                .await
        });
        Server(Some(runtime))
    }

    /// On a free loopback port, for who has this token only.
    pub fn start_tcp(token: &str, fake: &Fake) -> (Server, SocketAddr) {
        let runtime = runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let door = Door::of(vec![(
            Holders::with_persons(token, "operator").unwrap(),
            (),
        )])
        .unwrap();
        let (proven, incoming) = tokio::sync::mpsc::channel(16);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(((), _, mut sealed)) = door.answer(stream).await else {
                    continue;
                };
                let (mut here, there) = tokio::io::duplex(1 << 16);
                proven.send(Ok::<_, std::io::Error>(there)).await.unwrap();
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut sealed, &mut here).await;
                });
            }
        });
        let service = ControlServer::new(fake.clone());
        runtime.spawn(async move {
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(ReceiverStream::new(incoming))
                .await
        });
        (Server(Some(runtime)), addr)
    }
}

pub fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
