//! Connections to the engine's own port, which nobody else is to reach.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use robust_tree::Namespace;
use rustix::fs::{FileType, Mode, OFlags};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// The engine is on this machine.
const CONNECT: Duration = Duration::from_secs(2);

/// Where the engine listens.
#[derive(Debug, Clone)]
pub enum Address {
    /// On a port of this machine.
    Tcp(SocketAddr),
    /// On a Unix socket.
    Unix(PathBuf),
    /// On a port of a network namespace of its own.
    Namespace(Arc<Namespace>, SocketAddr),
}

impl Address {
    /// Opens a connection.
    pub async fn connect(&self) -> io::Result<Stream> {
        match self {
            Address::Tcp(addr) => Stream::tcp(TcpStream::connect(addr).await?),
            Address::Unix(path) => Ok(Stream::Unix(unix(path).await?)),
            Address::Namespace(namespace, addr) => {
                let (namespace, addr) = (Arc::clone(namespace), *addr);
                let connect = move || namespace.connect(addr, CONNECT);
                let stream = tokio::task::spawn_blocking(connect).await;
                let stream = stream.map_err(io::Error::other)??;
                stream.set_nonblocking(true)?;
                Stream::tcp(TcpStream::from_std(stream)?)
            }
        }
    }

    /// What names the engine in a request's `Host`.
    pub fn host(&self) -> String {
        match self {
            Address::Tcp(addr) | Address::Namespace(_, addr) => addr.to_string(),
            Address::Unix(_) => "localhost".to_owned(),
        }
    }
}

/// Connects to a socket `HOME/run/engine.sock`. The engine may be another user's, to whom `run` belongs, and this process
/// root's: a link that it lays there instead of its socket leads nowhere, for others' sockets would get requests that
/// they have no other way to get from this user.
async fn unix(path: &Path) -> io::Result<UnixStream> {
    let bad = || io::Error::from(io::ErrorKind::InvalidInput);
    let folder = path.parent().ok_or_else(bad)?;
    let name = path.file_name().ok_or_else(bad)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let socket = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
    let (own, found) = (rustix::fs::fstat(&folder)?, rustix::fs::fstat(&socket)?);
    if !FileType::from_raw_mode(found.st_mode).is_socket() || found.st_uid != own.st_uid {
        let error = format!("{} is no socket of the engine's", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
    }
    // What was looked at, whatever has that name by now.
    UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
}

/// An open connection.
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Tokens come one by one; each is to be passed on at once.
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Makes connections for the HTTP client, whatever address a request names.
#[derive(Debug, Clone)]
pub(crate) struct Connector(pub Address);

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let address = self.0.clone();
        Box::pin(async move { address.connect().await.map(TokioIo::new) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn a_link_in_place_of_the_engines_socket_or_folder_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let [run, other] = ["run", "other"].map(|name| home.path().join(name));
        std::fs::create_dir(&run).unwrap();
        std::fs::create_dir(&other).unwrap();
        let own = run.join("engine.sock");
        let _engine = UnixListener::bind(&own).unwrap();
        let _another = UnixListener::bind(other.join("engine.sock")).unwrap();
        assert!(Address::Unix(own.clone()).connect().await.is_ok());
        std::fs::remove_file(&own).unwrap();
        symlink(other.join("engine.sock"), &own).unwrap();
        assert!(Address::Unix(own.clone()).connect().await.is_err());
        std::fs::remove_dir_all(&run).unwrap();
        symlink(&other, &run).unwrap();
        assert!(Address::Unix(own).connect().await.is_err());
    }
}
