//! Proxying, side by side in one run: direct, through the runner, and through the runner with a mutating and a validating webhook (TLS and HMAC,
//! pooled). Latencies are those of one session; requests per second and CPU per request those of eight; memory that after 32 sessions.
#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use portcullis_benches::{load, proc};
use portcullis_e2e::process::{Process, binary};
use portcullis_e2e::request_webhook::RequestWebhook;
use portcullis_e2e::stage::{free_address, ready};
use portcullis_pki::{Ca, CertificateParams, Usage};
use serde_json::{Value, json};
use tokio::process::Command;

const SECRET: &[u8] = b"bench-secret";
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let backend = load::backend().await?;
    let (ca, pair) = certificates()?;
    let webhook = RequestWebhook::start(&pair, SECRET).await?;
    std::fs::write(folder.path().join("ca.crt"), ca.cert_pem())?;
    std::fs::write(folder.path().join("hmac"), SECRET)?;
    let hook = |path: &str| {
        json!({ "name": path, "url": format!("https://localhost:{}/{path}", webhook.address.port()), "timeout": 5_000_000_000_i64,
            "failure_policy": "fail", "hmac_secret_ref": folder.path().join("hmac"), "tls_config": { "ca_bundle_path": folder.path().join("ca.crt") } })
    };
    let step = |kind: &str, path: &str| {
        let parameters = json!({ "webhooks": [hook(path)], "server_name": "bench", "transport": "streamable-http" });
        json!({ "type": kind, "parameters": parameters })
    };
    let plain = Runner::start(folder.path(), "plain", backend, &[]).await?;
    let webhooks = [step("mutating-webhook", "mutate"), step("validating-webhook", "validate")];
    let gated = Runner::start(folder.path(), "gated", backend, &webhooks).await?;

    println!("{:<22} {:>9} {:>9} {:>9} {:>12} {:>9}", "", "p50 ms", "p99 ms", "req/s", "CPU ms/req", "RSS MiB");
    let targets = [
        ("direct", backend, None),
        ("runner", plain.address, Some(&plain)),
        ("runner + 2 webhooks", gated.address, Some(&gated)),
    ];
    for round in 0..=ROUNDS {
        for (name, address, runner) in &targets {
            let warm_up = round == 0;
            let calls = if warm_up { 500 } else { 4000 };
            let one = load::run(*address, 1, calls).await?;
            let before = runner.map(Runner::cpu).transpose()?;
            let eight = load::run(*address, 8, calls / 2).await?;
            let cpu =
                runner.map(Runner::cpu).transpose()?.zip(before).map(|(after, before)| after.saturating_sub(before));
            load::run(*address, 32, 50).await?;
            if !warm_up {
                print_row(name, &one, &eight, cpu, *runner)?;
            }
        }
    }
    plain.process.stop().await?;
    gated.process.stop().await?;
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "figures to look at")]
fn print_row(
    name: &str,
    one: &load::Measured,
    eight: &load::Measured,
    cpu: Option<Duration>,
    runner: Option<&Runner>,
) -> Result<()> {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let cpu = cpu.map_or("-".to_owned(), |cpu| format!("{:.4}", ms(cpu) / eight.calls as f64));
    let rss = runner.map(|runner| proc::memory_kib(runner.pid)).transpose()?;
    let rss = rss.map_or("-".to_owned(), |(now, _)| format!("{:.1}", now as f64 / 1024.0));
    let (p50, p99) = (ms(one.percentile(50)), ms(one.percentile(99)));
    println!("{name:<22} {p50:>9.3} {p99:>9.3} {:>9.0} {cpu:>12} {rss:>9}", eight.per_second());
    Ok(())
}

fn certificates() -> Result<(Ca, portcullis_pki::Pair)> {
    let now = Timestamp::now();
    let (from, to) = (now - SignedDuration::from_hours(1), now + SignedDuration::from_hours(24));
    let ca = Ca::generate("bench ca", from, to)?;
    let names = ["localhost".to_owned()];
    let params = CertificateParams {
        common_name: "localhost",
        organizations: &[],
        dns_names: &names,
        ip_addresses: &[],
        not_before: from,
        not_after: to,
        usage: Usage::Server,
    };
    let pair = ca.issue(&params)?;
    Ok((ca, pair))
}

/// A runner process in front of the backend.
struct Runner {
    process: Process,
    address: SocketAddr,
    pid: u32,
}

impl Runner {
    async fn start(folder: &Path, name: &str, backend: SocketAddr, webhooks: &[Value]) -> Result<Self> {
        let mut chain = vec![
            json!({ "type": "bodylimit", "parameters": { "max_bytes": 8_388_608 } }),
            json!({ "type": "auth", "parameters": {} }),
            json!({ "type": "mcp-parser", "parameters": {} }),
        ];
        chain.extend_from_slice(webhooks);
        chain.push(json!({ "type": "recovery", "parameters": null }));
        let config = json!({ "schema_version": "v0.1.0", "image": "bench", "name": name, "transport": "streamable-http", "host": "127.0.0.1",
            "port": 8080, "target_port": 8080, "permission_profile": null, "proxy_mode": "streamable-http", "middleware_configs": chain });
        let file = folder.join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_vec_pretty(&config)?)?;
        let address = free_address()?;
        let mut command = Command::new(binary("mcp-runner")?);
        command.arg("run").arg("--config").arg(&file);
        command.args(["--listen", &address.to_string(), "--backend", &format!("http://{backend}")]);
        let mut process = Process::start(name, folder, command)?;
        let pid = process.pid().context("the runner has no pid")?;
        ready(&mut process, address, "/health").await?;
        Ok(Self { process, address, pid })
    }

    fn cpu(&self) -> Result<Duration> {
        proc::cpu(self.pid)
    }
}
