//! AWS as tests have it: moto, and an STS that answers what it is told.

use std::path::PathBuf;
use std::process::{Command as StdCommand, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use super::runner::{Answer, read};
use super::within;

/// Moto, a process of its own (hack/aws).
pub(crate) struct Moto {
    pub(crate) url: String,
    client: Client<HttpConnector, Full<Bytes>>,
    _child: Child,
}

impl Moto {
    pub(crate) async fn start() -> Self {
        let hack = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../hack/aws");
        let python = StdCommand::new(hack.join("build.sh")).arg("where").output().unwrap();
        let python = PathBuf::from(String::from_utf8(python.stdout).unwrap().trim());
        assert!(python.exists(), "{} is missing: run `make aws`", python.display());
        let mut child = Command::new(python)
            .arg(hack.join("serve.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = within("moto to listen", lines.next_line()).await.unwrap().expect("it says where");
        Self { url, client: Client::builder(TokioExecutor::new()).build_http(), _child: child }
    }

    /// The sessions that it was asked for.
    pub(crate) async fn asked(&self) -> usize {
        self.send("GET", "/asked", &[], "").await.body.parse().unwrap()
    }

    /// Has it check signatures from here on, and whose they are.
    pub(crate) async fn check_signatures(&self) {
        assert_eq!(self.send("POST", "/moto-api/reset-auth", &[], "0").await.status, 200);
    }

    /// Sends it a request as it is.
    pub(crate) async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("{}{target}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        read(within("an answer of moto", self.client.request(request)).await.unwrap()).await
    }
}

/// Answers of an STS. The first is about the session of everybody.
#[derive(Clone)]
pub(crate) enum Said {
    /// Sessions that last so long.
    Session(Duration),
    /// This status and code, in an error.
    Error(u16, &'static str),
    /// Nothing: it closes the connection.
    Nothing,
}

/// An STS that answers as it is told.
pub(crate) struct Sts {
    pub(crate) url: String,
    pub(crate) says: Arc<Mutex<Said>>,
    forms: Arc<Mutex<Vec<String>>>,
}

/// The secret parts of its sessions.
pub(crate) const SESSION: [&str; 2] = ["s3cr3t/Key", "t0ken/OfSession="];

impl Sts {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let says = Arc::new(Mutex::new(Said::Session(Duration::from_hours(1))));
        let forms = Arc::<Mutex<Vec<_>>>::default();
        let (told, kept) = (Arc::clone(&says), Arc::clone(&forms));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (told, kept) = (Arc::clone(&told), Arc::clone(&kept));
                let service = service_fn(move |request| answer(Arc::clone(&told), Arc::clone(&kept), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, says, forms }
    }

    /// The forms so far.
    pub(crate) fn forms(&self) -> Vec<String> {
        self.forms.lock().unwrap().clone()
    }
}

async fn answer(
    told: Arc<Mutex<Said>>,
    kept: Arc<Mutex<Vec<String>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let form = request.into_body().collect().await?.to_bytes();
    kept.lock().unwrap().push(String::from_utf8(form.to_vec())?);
    let said = told.lock().unwrap().clone();
    let (status, body) = match said {
        Said::Session(lasts) => {
            let [secret, token] = SESSION;
            let until = Timestamp::try_from(SystemTime::now() + lasts)?;
            let members = format!(
                "<AccessKeyId>ASIAKEY</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>\
                 <SessionToken>{token}</SessionToken><Expiration>{until}</Expiration>"
            );
            (200, format!("<R><Result><Credentials>{members}</Credentials></Result></R>"))
        }
        Said::Error(status, code) => {
            // Some errors of STS show a part of the token.
            let message = format!("{form:?} of {SESSION:?}");
            (
                status,
                format!(
                    "<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
                ),
            )
        }
        Said::Nothing => return Err("the connection closes".into()),
    };
    Ok(Response::builder().status(status).body(Full::from(body))?)
}
