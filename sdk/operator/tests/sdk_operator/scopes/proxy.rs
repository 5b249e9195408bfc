//! A way to the API server that can be cut, or made slow.

#![allow(dead_code, reason = "each who takes this module needs a part of it")]

use std::path::PathBuf;
use std::time::Duration;

use portcullis_testing::ControlPlane;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    pub(crate) kubeconfig: String,
    open: watch::Sender<bool>,
    delay: watch::Sender<Duration>,
}

impl Proxy {
    /// For who has this kubeconfig.
    pub(crate) async fn start(cluster: &ControlPlane, kubeconfig: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let upstream = cluster.url().trim_start_matches("https://").to_owned();
        let ((open, watched), (delay, delayed)) = (watch::channel(true), watch::channel(Duration::ZERO));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut watched, delayed, upstream) = (watched.clone(), delayed.clone(), upstream.clone());
                tokio::spawn(async move {
                    if !*watched.borrow() {
                        return;
                    }
                    let Ok(server) = TcpStream::connect(upstream).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::select! {
                        _ = copy(from_client, to_server, &delayed) => {}
                        _ = copy(from_server, to_client, &delayed) => {}
                        _ = watched.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        let mut config: Value = serde_json::from_slice(&std::fs::read(kubeconfig).unwrap()).unwrap();
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://127.0.0.1:{port}"));
        let path: PathBuf = cluster.directory().join(format!("proxy-{port}.kubeconfig"));
        std::fs::write(&path, config.to_string()).unwrap();
        Self { kubeconfig: path.display().to_string(), open, delay }
    }

    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    /// From now on everything takes so much longer, there and back.
    pub(crate) fn delay(&self, time: Duration) {
        self.delay.send_replace(time);
    }

    pub(crate) fn repair(&self) {
        self.open.send_replace(true);
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: &watch::Receiver<Duration>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let time = *delay.borrow();
        tokio::time::sleep(time).await;
        to.write_all(&buffer[..read]).await?;
    }
}
