//! A way to the API server that can be cut.

use std::path::PathBuf;

use portcullis_testing::ControlPlane;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    pub(crate) kubeconfig: String,
    open: watch::Sender<bool>,
}

impl Proxy {
    /// For who has this kubeconfig.
    pub(crate) async fn start(cluster: &ControlPlane, kubeconfig: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let upstream = cluster.url().trim_start_matches("https://").to_owned();
        let (open, watched) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (mut watched, upstream) = (watched.clone(), upstream.clone());
                tokio::spawn(async move {
                    if !*watched.borrow() {
                        return;
                    }
                    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = watched.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        let mut config: Value = serde_json::from_slice(&std::fs::read(kubeconfig).unwrap()).unwrap();
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://127.0.0.1:{port}"));
        let path: PathBuf = cluster.directory().join(format!("proxy-{port}.kubeconfig"));
        std::fs::write(&path, config.to_string()).unwrap();
        Self { kubeconfig: path.display().to_string(), open }
    }

    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.open.send_replace(true);
    }
}
