//! The calls that a client of a provider makes.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;

use crate::{Client, DEADLINE};

/// No answer of a provider is longer.
const ANSWER_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Http {
    client: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Http {
    /// Trusts this authority alone.
    pub(crate) fn new(ca_pem: Option<&str>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.unwrap_or_default().as_bytes()) {
            roots.add(certificate?)?;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        // A provider that is started again at its address has forgotten the connections to the one before.
        let client = HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { client })
    }

    pub(crate) async fn get(&self, url: &str) -> Result<Value> {
        self.send(Request::get(url).body(Full::default())?).await
    }

    /// POSTs a form as `client` (RFC 6749, section 2.3.1).
    pub(crate) async fn post(&self, url: &str, client: Client, form: &[(&str, &str)]) -> Result<Value> {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let basic = STANDARD.encode(format!("{}:{}", client.id, client.secret));
        let request = Request::post(url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(AUTHORIZATION, format!("Basic {basic}"))
            .body(Full::from(form))?;
        self.send(request).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Value> {
        let url = request.uri().clone();
        let call = async {
            let (head, body) = self.client.request(request).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await.map_err(anyhow::Error::from_boxed)?.to_bytes();
            ensure!(head.status.is_success(), "{}: {}", head.status, String::from_utf8_lossy(&body));
            Ok(serde_json::from_slice(&body)?)
        };
        let answer = tokio::time::timeout(DEADLINE, call).await.context("no answer in time");
        answer.and_then(|answer| answer).with_context(|| url.to_string())
    }
}
