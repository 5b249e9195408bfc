//! The webhooks as they are written by hand with kube's types and a bare HTTP stack: the patch written out, the conversion
//! through the hub.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation};
use kube::ResourceExt as _;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};
use kube::core::conversion::{ConversionRequest, ConversionResponse, ConversionReview};
use kube::core::{DynamicObject, Status};
use portcullis_benches::webhook::entity::{
    FORBIDDEN, LABEL, OVERWRITE, OVERWRITTEN, REFUSAL, v1, v1_to_v3, v2, v2_to_v3, v3, v3_to_v1, v3_to_v2,
};
use portcullis_benches::webhook::serve::{Flags, main as serve_main};
use serde_json::{Value, json};
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

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let answered = match path.as_str() {
        "/validate/entity" => admit(&body, |request| Ok(validate(request))),
        "/mutate/entity" => admit(&body, mutate),
        _ => convert(&body),
    };
    let mut response = match answered {
        Ok(answer) => Response::new(Full::from(answer)),
        Err(problem) => {
            let mut response = Response::new(Full::from(problem.to_string()));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            response
        }
    };
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    Ok(response)
}

type Admission = AdmissionRequest<v3::Entity>;

fn admit(body: &[u8], decide: impl Fn(&Admission) -> Result<AdmissionResponse>) -> Result<Vec<u8>> {
    let review: AdmissionReview<v3::Entity> = serde_json::from_slice(body)?;
    let request: Admission = review.try_into()?;
    let answer: AdmissionReview<DynamicObject> = decide(&request)?.into_review();
    Ok(serde_json::to_vec(&answer)?)
}

fn validate(request: &Admission) -> AdmissionResponse {
    let answer = AdmissionResponse::from(request);
    let refused = request.object.as_ref().is_some_and(|new| new.spec.username == FORBIDDEN);
    if refused { answer.deny(REFUSAL) } else { answer }
}

fn mutate(request: &Admission) -> Result<AdmissionResponse> {
    let answer = AdmissionResponse::from(request);
    let Some(new) = request.object.as_ref().filter(|new| new.spec.username == OVERWRITE) else { return Ok(answer) };
    let at = |tokens: &[&str]| PointerBuf::from_tokens(tokens.iter().copied());
    let mut operations = Vec::new();
    if new.labels().is_empty() {
        operations.push(PatchOperation::Add(AddOperation { path: at(&["metadata", "labels"]), value: json!({}) }));
    }
    operations.extend([
        PatchOperation::Add(AddOperation { path: at(&["metadata", "labels", LABEL]), value: "true".into() }),
        PatchOperation::Replace(ReplaceOperation { path: at(&["spec", "username"]), value: OVERWRITTEN.into() }),
    ]);
    Ok(answer.with_patch(Patch(operations))?)
}

fn convert(body: &[u8]) -> Result<Vec<u8>> {
    let review: ConversionReview = serde_json::from_slice(body)?;
    let mut request = ConversionRequest::from_review(review).map_err(|error| anyhow::anyhow!("{error}"))?;
    let objects = std::mem::take(&mut request.objects);
    let desired = request.desired_api_version.clone();
    let answer = ConversionResponse::for_request(request);
    let converted: Result<Vec<Value>> = objects.into_iter().map(|object| convert_one(object, &desired)).collect();
    let answer = match converted {
        Ok(objects) => answer.success(objects),
        Err(problem) => answer.failure(Status::failure(&problem.to_string(), "ConversionFailed")),
    };
    Ok(serde_json::to_vec(&answer.into_review())?)
}

fn convert_one(object: Value, desired: &str) -> Result<Value> {
    let from = object["apiVersion"].as_str().context("an object has no apiVersion")?;
    let hub = match from {
        "entity.example.com/v1" => v1_to_v3(serde_json::from_value::<v1::Entity>(object)?),
        "entity.example.com/v2" => v2_to_v3(serde_json::from_value::<v2::Entity>(object)?),
        "entity.example.com/v3" => serde_json::from_value::<v3::Entity>(object)?,
        _ => bail!("no such version: {from}"),
    };
    Ok(match desired {
        "entity.example.com/v1" => serde_json::to_value(v3_to_v1(hub))?,
        "entity.example.com/v2" => serde_json::to_value(v3_to_v2(hub))?,
        "entity.example.com/v3" => serde_json::to_value(hub)?,
        _ => bail!("no such version: {desired}"),
    })
}
