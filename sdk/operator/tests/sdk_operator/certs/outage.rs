//! An API server that cannot be reached for a while.

use std::net::Ipv4Addr;
use std::process::Stdio;

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Installation;
use crate::PATIENCE;
use crate::examples::command;

/// A way to a server that can be closed, and opened again.
struct Gate {
    port: u16,
    open: watch::Sender<bool>,
}

impl Gate {
    async fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (open, opened) = watch::channel(true);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut opened = opened.clone();
                tokio::spawn(async move {
                    let relay = async {
                        let mut upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await.unwrap();
                        let _ = copy_bidirectional(&mut stream, &mut upstream).await;
                    };
                    tokio::select! {
                        _ = opened.wait_for(|open| !open) => {}
                        () = relay => {}
                    }
                });
            }
        });
        Self { port, open }
    }
}

/// Reads lines until one holds these words.
async fn until(words: &str, lines: &mut (impl AsyncRead + Unpin)) {
    let mut lines = BufReader::new(lines).lines();
    let find = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(words) {
                return;
            }
        }
        panic!("it ended without: {words}");
    };
    timeout(PATIENCE, find).await.unwrap_or_else(|_| panic!("it never said: {words}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_is_waited_for_through_an_outage_of_the_api_server() {
    let place = Installation::new().await;
    let kubeconfig = std::fs::read_to_string(&place.kubeconfig).unwrap();
    let server = kubeconfig.split_once("https://127.0.0.1:").unwrap().1;
    let server: String = server.chars().take_while(char::is_ascii_digit).collect();
    let gate = Gate::to(server.parse().unwrap()).await;
    let gated = kubeconfig.replace(&format!("127.0.0.1:{server}"), &format!("127.0.0.1:{}", gate.port));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), gated).unwrap();

    let config = file.path().to_str().unwrap();
    let arguments = ["certs", "rotate", "--wait", "--timeout", "10m", "--kubeconfig", config];
    let place_arguments = ["--namespace", &place.name, "--release", &place.name];
    let mut waiting = command("controller", &[&arguments[..], &place_arguments].concat());
    let mut waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut output, mut log) = (waiting.stdout.take().unwrap(), waiting.stderr.take().unwrap());
    until("a rotation has begun: publishing", &mut output).await;
    gate.open.send(false).unwrap();
    until("cannot see how far the rotation is", &mut log).await;

    // It ends meanwhile.
    let steady = json!({ "data": { "next.crt": null, "next.key": null } });
    let secret = format!("{}-webhook-tls-ca", place.name);
    place.secrets().patch(&secret, &PatchParams::default(), &Patch::Merge(steady)).await.unwrap();
    gate.open.send(true).unwrap();
    until(": steady (one CA)", &mut output).await;
    let ended = timeout(PATIENCE, waiting.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
}
