//! Asks proxies whether the remote servers that they check answer: their readiness does not depend on it, and no pod tells of it.

use std::{io, net::IpAddr, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::workload::Reach;

/// The time that a proxy has for its answer.
const DEADLINE: Duration = Duration::from_secs(2);
/// The longest answer that is read, in bytes.
const LONGEST: u64 = 8 << 10;
/// The longest error that is repeated, in bytes.
const LONGEST_ERROR: usize = 256;

/// The health report of a proxy, as far as it is read.
#[derive(Deserialize)]
struct Report {
    mcp: Option<Server>,
}

#[derive(Deserialize)]
struct Server {
    available: bool,
    #[serde(default)]
    error: String,
}

/// Asks the proxies in these pods, which listen on `port`. None where none of them answers, or none has checked its server yet.
pub(super) async fn ask(pods: &[&Pod], port: u16) -> Option<Reach> {
    let addresses = pods.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.as_ref()?.parse::<IpAddr>().ok());
    let reports = join_all(addresses.map(|address| async move {
        let report = tokio::time::timeout(DEADLINE, report(address, port)).await;
        report
            .ok()?
            .inspect_err(|error| tracing::debug!(%address, port, %error, "a proxy does not tell its health"))
            .ok()
    }))
    .await;
    let servers: Vec<Server> = reports.into_iter().flatten().filter_map(|report| report.mcp).collect();
    if servers.iter().any(|server| server.available) {
        return Some(Reach::Answers);
    }
    servers.into_iter().next().map(|Server { mut error, .. }| {
        error.truncate(error.floor_char_boundary(LONGEST_ERROR));
        Reach::Fails(error)
    })
}

async fn report(address: IpAddr, port: u16) -> io::Result<Report> {
    let mut stream = TcpStream::connect((address, port)).await?;
    stream.write_all(b"GET /health HTTP/1.0\r\nhost: proxy\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok(serde_json::from_str(body)?)
}
