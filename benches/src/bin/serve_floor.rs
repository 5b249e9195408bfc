//! The least that a webhook server in Rust can do: hyper and rustls, the envelope parsed with its objects left as they are,
//! and an answer that allows, or gives the objects back unconverted.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use portcullis_benches::webhook::serve::{Flags, main as serve_main};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

fn main() -> Result<()> {
    serve_main(serve)
}

async fn serve(flags: Flags) -> Result<()> {
    let listener = TcpListener::bind(flags.address()).await?;
    let acceptor = TlsAcceptor::from(Arc::new(flags.tls()?));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await.ok();
            }
        });
    }
}

#[derive(Deserialize)]
struct Review<'a> {
    #[serde(borrow)]
    request: Asked<'a>,
}

#[derive(Deserialize)]
struct Asked<'a> {
    uid: &'a str,
    #[serde(borrow)]
    objects: Option<Vec<&'a RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: Said<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Said<'a> {
    Admitted {
        uid: &'a str,
        allowed: bool,
    },
    #[serde(rename_all = "camelCase")]
    Converted {
        uid: &'a str,
        converted_objects: Vec<&'a RawValue>,
        result: Outcome,
    },
}

#[derive(Serialize)]
struct Outcome {
    status: &'static str,
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let answered = serde_json::from_slice::<Review<'_>>(&body).and_then(|review| {
        let uid = review.request.uid;
        let (api_version, kind, response) = match review.request.objects {
            Some(converted_objects) => {
                let result = Outcome { status: "Success" };
                ("apiextensions.k8s.io/v1", "ConversionReview", Said::Converted { uid, converted_objects, result })
            }
            None => ("admission.k8s.io/v1", "AdmissionReview", Said::Admitted { uid, allowed: true }),
        };
        serde_json::to_vec(&Answer { api_version, kind, response })
    });
    let mut response = Response::new(Full::from(answered.unwrap_or_default()));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}
