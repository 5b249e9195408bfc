//! The runner's binary, and plain HTTP to it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::{TlsFront, eventually, signal, within};

/// A RunConfig as the operator writes it, with `members` over it.
pub(crate) fn document(transport: &str, members: &Value) -> String {
    let mut document = json!({
        "schema_version": "v0.1.0", "image": "localhost/everything:1", "name": "demo", "transport": transport,
        "host": "127.0.0.1", "port": 0, "target_port": 8080, "proxy_mode": "streamable-http",
        "middleware_configs": [
            {"type": "bodylimit", "parameters": {"max_bytes": 8_388_608}},
            {"type": "auth", "parameters": {}},
            {"type": "mcp-parser", "parameters": {}},
            {"type": "recovery", "parameters": null},
        ],
    });
    for (name, value) in members.as_object().unwrap() {
        document[name] = value.clone();
    }
    document.to_string()
}

/// A running `mcp-runner`.
pub(crate) struct Runner {
    child: Child,
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<String>>,
    output: Arc<Mutex<String>>,
    client: Client<HttpConnector, Full<Bytes>>,
    _directory: TempDir,
}

/// An answer that was read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    /// The message in the body: JSON, or the last event of a stream.
    pub(crate) fn message(&self) -> Value {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        serde_json::from_str(data.unwrap_or(&self.body)).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Runner {
    /// In front of the HTTP server at `backend`, with `members` over the usual document.
    pub(crate) async fn http(backend: &str, members: &Value) -> Self {
        Self::http_with(backend, members, &[]).await
    }

    /// The same, with more in the runner's environment.
    pub(crate) async fn http_with(backend: &str, members: &Value, environment: &[(&str, &str)]) -> Self {
        Self::start("streamable-http", members, &["--backend".into(), backend.into()], environment).await
    }

    /// In front of the HTTP server at `backend`, for callers who log in as `oidc` says, to a provider on loopback.
    pub(crate) async fn login(backend: &str, oidc: &Value) -> Self {
        Self::login_with(backend, oidc, &[]).await
    }

    /// The same, with more in the runner's environment.
    pub(crate) async fn login_with(backend: &str, oidc: &Value, environment: &[(&str, &str)]) -> Self {
        let flags = ["--backend", backend, "--allow-endpoint-cidr", "127.0.0.0/8"].map(OsString::from);
        Self::start("streamable-http", &json!({"oidc_config": oidc}), &flags, environment).await
    }

    /// The same in front of a process of its own.
    pub(crate) async fn login_stdio(command: &[OsString], oidc: &Value) -> Self {
        let mut arguments = ["--allow-endpoint-cidr", "127.0.0.0/8", "--"].map(OsString::from).to_vec();
        arguments.extend_from_slice(command);
        Self::start("stdio", &json!({"oidc_config": oidc}), &arguments, &[]).await
    }

    /// With these flags and the usual document.
    pub(crate) async fn with_flags(flags: &[&str]) -> Self {
        let flags: Vec<_> = flags.iter().map(OsString::from).collect();
        Self::start("streamable-http", &json!({}), &flags, &[]).await
    }

    /// In front of a process of its own.
    pub(crate) async fn stdio(command: &[OsString], members: &Value) -> Self {
        Self::stdio_with(command, members, &[]).await
    }

    /// The same, with more in the runner's environment.
    pub(crate) async fn stdio_with(command: &[OsString], members: &Value, environment: &[(&str, &str)]) -> Self {
        let mut arguments = vec![OsString::from("--")];
        arguments.extend_from_slice(command);
        Self::start("stdio", members, &arguments, environment).await
    }

    /// In front of the remote server behind `front`, at this path and query there; networks in `allowed` may be called.
    pub(crate) async fn remote(
        front: &TlsFront,
        path: &str,
        allowed: &str,
        members: &Value,
        environment: &[(&str, &str)],
    ) -> Self {
        Self::remote_at(&format!("https://{}{path}", front.address), &front.ca(), allowed, members, environment).await
    }

    /// In front of the remote server at `url`, whose certificate is of the authority in the file `ca`.
    pub(crate) async fn remote_at(
        url: &str,
        ca: &Path,
        allowed: &str,
        members: &Value,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut members = members.clone();
        members["remote_url"] = url.into();
        let environment = [&[("SSL_CERT_FILE", ca.to_str().unwrap())], environment].concat();
        Self::start("streamable-http", &members, &["--allow-endpoint-cidr".into(), allowed.into()], &environment).await
    }

    /// With these arguments, `members` over the usual document, and more in its environment.
    pub(crate) async fn start(
        transport: &str,
        members: &Value,
        arguments: &[OsString],
        environment: &[(&str, &str)],
    ) -> Self {
        let directory = TempDir::new().unwrap();
        let config = write(directory.path(), &document(transport, members));
        let delay = ["--drain-delay".into(), "0s".into()];
        let delay = if arguments.contains(&delay[0]) { &[][..] } else { &delay };
        let mut child = Command::new(env!("CARGO_BIN_EXE_mcp-runner"))
            .args(["run", "--k8s-pod-patch={}", "--listen", "127.0.0.1:0", "--config"])
            .arg(&config)
            .args(delay)
            .arg("localhost/everything:1")
            .args(arguments)
            // These tests may run in a pod.
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env("RUST_LOG", "debug,hyper_util=info")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let output = Arc::new(Mutex::new(String::new()));
        let (mut written, kept) = (BufReader::new(child.stdout.take().unwrap()).lines(), Arc::clone(&output));
        tokio::spawn(async move {
            while let Ok(Some(line)) = written.next_line().await {
                kept.lock().unwrap().extend([&*line, "\n"]);
            }
        });
        let (listening, mut address) = watch::channel(None);
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let kept = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, rest)) = line.split_once("listening address=") {
                    listening.send_replace(rest.split(' ').next().and_then(|text| text.parse().ok()));
                }
                let mut log = kept.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let found =
            within("the runner to listen", address.wait_for(Option::is_some)).await.ok().and_then(|found| *found);
        let Some(address) = found else { panic!("the runner ended: {}", log.lock().unwrap()) };
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { child, address, log, output, client, _directory: directory }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Its standard output so far.
    pub(crate) fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Waits until the log holds `text`.
    pub(crate) async fn logged(&self, text: &str) {
        eventually(&format!("the log to say {text:?}"), || async { self.log().contains(text).then_some(()) }).await;
    }

    /// Sends a request as `build` makes it and returns when the head of the answer is there.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        within("an answer", self.client.request(request)).await.unwrap()
    }

    pub(crate) async fn request(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        read(self.send(self.build(method, path, headers, body)).await).await
    }

    pub(crate) fn build(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request(Method::GET, path, &[], "").await
    }

    /// Waits until `/readyz` says yes.
    pub(crate) async fn ready(&self) {
        eventually("the proxy to be ready", || async { (self.get("/readyz").await.status == 200).then_some(()) }).await;
    }

    /// POSTs a message to `/mcp` as MCP clients do.
    pub(crate) async fn post(&self, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut all = vec![("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        all.extend_from_slice(headers);
        self.request(Method::POST, "/mcp", &all, body).await
    }

    /// Opens a session and returns its id.
    pub(crate) async fn session(&self) -> String {
        let answer = self.post(&[], super::INITIALIZE).await;
        let session = answer.header("mcp-session-id").unwrap_or_else(|| panic!("{answer:?}")).to_owned();
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let answer = self.post(&[("mcp-session-id", &session)], initialized).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        session
    }

    pub(crate) fn terminate(&self) {
        signal("TERM", self.pid());
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        within("the runner to end", self.child.wait()).await.unwrap()
    }
}

/// Reads an answer to its end.
pub(crate) async fn read(response: Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = within("the end of an answer", body.collect()).await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

fn write(directory: &Path, document: &str) -> PathBuf {
    let path = directory.join("runconfig.json");
    std::fs::write(&path, document).unwrap();
    path
}
