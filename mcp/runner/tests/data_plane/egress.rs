//! The egress proxy of an installation: what is called through it, and what is not.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::{Recorder, Runner, TlsFront, eventually};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const PONG: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
/// Loopback may be called, as `localhost` has two addresses.
const LOOPBACK: &str = "127.0.0.0/8,::1/128";

/// An HTTP proxy that makes tunnels to this machine, and notes to where it was asked for one; it ends when it is dropped.
struct Egress {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Egress {
    /// `refuses`: it lets nobody out.
    async fn start(refuses: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let noted = Arc::clone(&asked);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(tunnel(stream, Arc::clone(&noted), refuses));
            }
        });
        Self { address, asked, accepting }
    }

    /// Each once: what fails is tried again.
    fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap().clone();
        asked.dedup();
        asked
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn tunnel(mut client: TcpStream, asked: Arc<Mutex<Vec<String>>>, refuses: bool) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or(&head).to_owned();
    let port = target.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    asked.lock().unwrap().push(target);
    let (false, Some(port)) = (refuses, port) else {
        let _ = client.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
        return;
    };
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    if client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.is_ok() {
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    }
}

/// With this egress proxy, flags and members over the usual document; it trusts the authority of `front`.
async fn runner(
    egress: &Egress,
    front: &TlsFront,
    flags: &[&str],
    members: &Value,
    environment: &[(&str, &str)],
) -> Runner {
    let mut arguments = vec![OsString::from(format!("--egress-proxy=http://{}", egress.address))];
    arguments.extend(flags.iter().map(OsString::from));
    let ca = front.ca();
    let environment = [&[("SSL_CERT_FILE", ca.to_str().unwrap())], environment].concat();
    Runner::start("streamable-http", members, &arguments, &environment).await
}

// Case 02.
#[tokio::test]
async fn no_remote_server_is_called_past_the_egress_proxy() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let host = format!("localhost:{}", front.address.port());
    let remote = json!({"remote_url": format!("https://{host}/mcp")});
    for (no_proxy, through) in [("--no-proxy=10.0.0.0/8", true), ("--no-proxy=other,localhost", false)] {
        let egress = Egress::start(false).await;
        let runner = runner(&egress, &front, &["--allow-endpoint-cidr", LOOPBACK, no_proxy], &remote, &[]).await;
        let (answer, ()) =
            tokio::join!(runner.post(&[], PING), async { backend.next().await.json("200 OK", "", PONG).await });
        assert_eq!(answer.status, 200, "{no_proxy}: {answer:?}");
        assert_eq!(egress.asked(), if through { vec![host.clone()] } else { Vec::new() }, "{no_proxy}");
    }
    // This machine and the cluster's Services are called directly unless the installation says otherwise.
    let egress = Egress::start(false).await;
    let runner = runner(&egress, &front, &["--allow-endpoint-cidr", LOOPBACK], &remote, &[]).await;
    let (answer, ()) =
        tokio::join!(runner.post(&[], PING), async { backend.next().await.json("200 OK", "", PONG).await });
    assert_eq!((answer.status, egress.asked()), (200, Vec::new()));
}

#[tokio::test]
async fn an_address_that_may_not_be_called_is_not_called_through_the_egress_proxy() {
    let mut backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let (egress, closed) = (Egress::start(false).await, Egress::start(true).await);
    let url = |host: &str| json!({"remote_url": format!("https://{host}:{}/mcp", front.address.port())});
    // The proxy would choose one of the two addresses of the name; it alone could tell where a name leads that nobody knows here.
    let unknown = format!("mcp.example.invalid:{}", front.address.port());
    for (egress, host, allowed, asked) in [
        (&egress, "localhost", "::1/128", Vec::new()),
        (&egress, "mcp.example.invalid", LOOPBACK, vec![unknown.clone()]),
        (&closed, "mcp.example.invalid", LOOPBACK, vec![unknown]),
    ] {
        let flags = ["--allow-endpoint-cidr", allowed, "--no-proxy=none.example"];
        let runner = runner(egress, &front, &flags, &url(host), &[]).await;
        let answer = runner.post(&[], PING).await;
        // The certificate does not bear the name that the proxy led here.
        assert_eq!((answer.status, egress.asked()), (502, asked), "{host} {allowed}: {answer:?}\n{}", runner.log());
    }
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn providers_and_webhooks_are_called_through_the_egress_proxy_and_no_variable_names_one() {
    let backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let host = format!("localhost:{}", front.address.port());
    let egress = Egress::start(true).await;
    let server = format!("http://{}", backend.address);
    let flags = ["--allow-endpoint-cidr", LOOPBACK, "--no-proxy=none.example", "--backend", &server];
    let webhook = json!({"name": "w", "url": format!("https://{host}/"), "failure_policy": "fail"});
    let oidc = json!({"Issuer": format!("https://{host}"), "Audience": "a"});
    let token = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJhIn0.c2ln";
    let authorization = format!("Bearer {token}");
    for members in [json!({"validating_webhooks": [webhook], "middleware_configs": []}), json!({"oidc_config": oidc})] {
        let egress = Egress::start(true).await;
        let runner = runner(&egress, &front, &flags, &members, &[]).await;
        let headers = [("content-type", "application/json"), ("authorization", &*authorization)];
        let answer = runner.request(Method::POST, "/mcp", &headers, PING).await;
        assert!(answer.status >= 400, "{answer:?}");
        eventually("a call through the proxy", || async { (!egress.asked().is_empty()).then_some(()) }).await;
        assert!(egress.asked().iter().all(|asked| *asked == host), "{:?}", egress.asked());
    }
    let variable = format!("http://{}", egress.address);
    let unread = [("HTTPS_PROXY", &*variable), ("no_proxy", "")];
    let runner = Runner::remote(&front, "/mcp", LOOPBACK, &json!({}), &unread).await;
    runner.logged("these variables have no effect; see --egress-proxy and --no-proxy variables=\"HTTPS_PROXY\"").await;
    drop(runner);
    assert_eq!(egress.asked(), Vec::<String>::new());
}
