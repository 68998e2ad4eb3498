//! Connections as services take them, with what was found out of whoever is at the other end.
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// A connection, and what requests on it know of its other end.
pub struct Known<Io, Of> {
    stream: Io,
    of: Of,
}

impl<Io, Of> Known<Io, Of> {
    /// Of a connection whose other end this is.
    pub fn new(stream: Io, of: Of) -> Self {
        Self { stream, of }
    }
}

impl<Io, Of: Clone + Send + Sync + 'static> Connected for Known<Io, Of> {
    type ConnectInfo = Of;

    fn connect_info(&self) -> Of {
        self.of.clone()
    }
}

impl<Io: AsyncRead + Unpin, Of: Unpin> AsyncRead for Known<Io, Of> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl<Io: AsyncWrite + Unpin, Of: Unpin> AsyncWrite for Known<Io, Of> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
