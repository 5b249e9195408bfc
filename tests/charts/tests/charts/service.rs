//! A stand-in for Services and endpoints in a cluster with nodes: each new connection goes to a ready Pod.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use portcullis_charts::{DYNAMO, chart};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A port of this machine that leads to the operator's process.
pub(crate) struct Service {
    port: u16,
    pod: Arc<AtomicU16>,
    _connections: JoinSet<()>,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, pod) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU16::new(0)));
        let (mut accepting, to) = (JoinSet::new(), Arc::clone(&pod));
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut caller, _)) = listener.accept().await {
                let pod = to.load(Ordering::Relaxed);
                connections.spawn(async move {
                    // One that is not there, or breaks off, is the caller's to notice.
                    let Ok(mut pod) = TcpStream::connect(("127.0.0.1", pod)).await else { return };
                    let _ = copy_bidirectional(&mut caller, &mut pod).await;
                });
            }
        });
        Self { port, pod, _connections: accepting }
    }

    /// Leads new connections to this port.
    pub(crate) fn leads_to(&self, port: u16) {
        self.pod.store(port, Ordering::Relaxed);
    }

    /// The chart in a folder, as it is but for its Service, which leads here: the API server reaches this machine by an
    /// ExternalName, and a port that another pod may listen on.
    pub(crate) fn chart(&self, folder: &Path) -> PathBuf {
        let copy = folder.join(DYNAMO);
        assert!(Command::new("cp").arg("-r").args([&chart(DYNAMO), &copy]).status().unwrap().success());
        let ports = "  ports:\n  - name: webhooks\n    port: 443\n    protocol: TCP\n    targetPort: webhooks\n";
        let named = "  type: ExternalName\n  externalName: localhost\n";
        for (file, this, that) in [
            ("operator.yaml", ports, named),
            ("webhooks.yaml", "      port: 443\n", &format!("      port: {}\n", self.port)),
        ] {
            let path = copy.join("templates").join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(this), "{file} has no {this}");
            std::fs::write(&path, text.replace(this, that)).unwrap();
        }
        copy
    }
}
