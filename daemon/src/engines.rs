//! How the leader asks the job's engines: in clear on this machine, over TLS on others.
use robust_engine::EngineAddr;
use robust_identity::EngineClient;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// One request to the engine at `addr`, as [`EngineAddr`] has it, and the status of its answer; the connection ends with it.
/// `head` and `body` are HTTP/1.1, the head without its last lines.
///
/// # Errors
/// It is not reached, is not of the job, or ends without an answer.
pub async fn status_of(
    addr: &str,
    client: Option<&EngineClient>,
    head: &str,
    body: &str,
) -> io::Result<u16> {
    let address = EngineAddr::of(addr);
    let stream = TcpStream::connect(address.at).await?;
    let at = address.at;
    let request = format!("{head}\r\nHost: {at}\r\nConnection: close\r\n\r\n{body}");
    match (address.sealed, client) {
        (false, _) => asked(stream, &request).await,
        (true, Some(client)) => asked(client.call(stream).await?, &request).await,
        (true, None) => Err(io::Error::other("this job has no authority to know it by")),
    }
}

async fn asked(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> io::Result<u16> {
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    // The status line is all that counts: "HTTP/1.1 200".
    while head.len() < 12 {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let status = head
        .get(9..12)
        .and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
    Ok(status.unwrap_or(0))
}
