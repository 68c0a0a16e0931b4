//! `--metrics`: an endpoint from which Prometheus reads what the process counts. It answers one path and takes no input.

mod recorder;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::say;

use recorder::Recorder;

/// Most bytes of a request that are read.
const REQUEST_BYTES: usize = 8 << 10;
/// How long a request may take to arrive and an answer to leave.
const PATIENCE: Duration = Duration::from_secs(5);

/// `PORT` of this machine only, or `ADDRESS:PORT`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let expected = "expected a port, such as 9090, or an address and a port, such as 0.0.0.0:9090";
    text.parse()
        .map(loopback)
        .or_else(|_| text.parse())
        .map_err(|_| expected.into())
}

/// Begins to count, and to answer on `address` as long as the runtime lives.
pub(crate) async fn serve(address: SocketAddr) -> anyhow::Result<()> {
    let recorder = Recorder::default();
    metrics::set_global_recorder(recorder.clone())
        .map_err(|_| anyhow::anyhow!("metrics are counted already"))?;
    host::enable_metrics();
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("--metrics {address}"))?;
    say(format_args!(
        "metrics on http://{}/metrics",
        listener.local_addr()?
    ));
    tokio::spawn(async move {
        // One at a time: whoever reads metrics comes every few seconds.
        while let Ok((stream, _)) = listener.accept().await {
            // A reader that has gone, or takes too long, misses this answer.
            drop(tokio::time::timeout(PATIENCE, answer(stream, &recorder)).await);
        }
    });
    Ok(())
}

async fn answer(mut stream: TcpStream, recorder: &Recorder) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= REQUEST_BYTES || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        ("200 OK", recorder.render())
    } else if request.starts_with(b"GET ") {
        ("404 Not Found", "metrics are at /metrics\n".into())
    } else {
        ("405 Method Not Allowed", "GET only\n".into())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_machine_only() {
        assert_eq!(address("9090"), Ok("127.0.0.1:9090".parse().unwrap()));
        assert_eq!(address("0.0.0.0:1"), Ok("0.0.0.0:1".parse().unwrap()));
        assert_eq!(address("[::1]:1"), Ok("[::1]:1".parse().unwrap()));
        for text in ["", "localhost", "70000", ":9090"] {
            let refusal = address(text).unwrap_err();
            assert!(refusal.starts_with("expected a port"), "{text}");
        }
    }
}
