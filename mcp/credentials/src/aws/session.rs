//! A session of a role, and the signature that it makes (AWS Signature Version 4).

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_lc_rs::digest::{SHA256, digest};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, EXPECT, HeaderName, HeaderValue, TRANSFER_ENCODING, USER_AGENT, VIA};
use http::request::Parts;
use mcp_http::{Sign, Signer};
use mcp_runconfig::is_claim_header;

use crate::held::Credential;

/// The headers that whoever is on the way may change, beside those about the way itself.
const UNSIGNED: [HeaderName; 10] = [
    AUTHORIZATION,
    CONNECTION,
    EXPECT,
    TRANSFER_ENCODING,
    USER_AGENT,
    VIA,
    HeaderName::from_static("baggage"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-amzn-trace-id"),
];

/// A session of a role. Its `Debug` does not show its secret and its token.
#[derive(Clone, Debug)]
pub(crate) struct Session(Credentials);

impl Session {
    pub(super) fn new(key: &str, secret: &str, token: &str) -> Self {
        Self(Credentials::new(key, secret, Some(token.to_owned()), None, "sts"))
    }
}

impl PartialEq for Session {
    fn eq(&self, other: &Self) -> bool {
        self.0.session_token() == other.0.session_token()
    }
}

impl Credential for Session {
    fn bytes(&self) -> usize {
        let token = self.0.session_token().unwrap_or_default();
        self.0.access_key_id().len() + self.0.secret_access_key().len() + token.len()
    }
}

/// The region and the service that signatures are good for.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) region: Arc<str>,
    pub(super) service: Arc<str>,
}

/// Signs with one session.
struct OfSession {
    scope: Scope,
    session: Session,
}

impl Scope {
    pub(super) fn signer(&self, session: Session) -> Signer {
        Signer::new(OfSession { scope: self.clone(), session })
    }

    /// Signs a request for those who get it at `time`.
    fn sign(
        &self,
        Session(credentials): &Session,
        head: &mut Parts,
        body: &[u8],
        time: SystemTime,
    ) -> Result<(), String> {
        let identity = credentials.clone().into();
        let parameters = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(time)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| error.to_string())?
            .into();
        // Others than text would be signed as something else.
        let headers = head.headers.iter().filter(|(name, _)| is_signed(name));
        let headers = headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let body = SignableBody::Precomputed(hash(body));
        let request = SignableRequest::new(head.method.as_str(), head.uri.to_string(), headers, body);
        let request = request.map_err(|error| error.to_string())?;
        let signed = sign(request, &parameters).map_err(|error| error.to_string())?.into_parts().0;
        for header in signed.into_parts().0 {
            let mut value = HeaderValue::from_str(header.value()).map_err(|error| error.to_string())?;
            value.set_sensitive(true);
            head.headers.insert(HeaderName::from_static(header.name()), value);
        }
        Ok(())
    }
}

impl Sign for OfSession {
    fn sign(&self, head: &mut Parts, body: &Bytes) -> Result<(), String> {
        self.scope.sign(&self.session, head, body, SystemTime::now())
    }
}

fn is_signed(name: &HeaderName) -> bool {
    !UNSIGNED.contains(name) && !is_claim_header(name.as_str())
}

fn hash(body: &[u8]) -> String {
    digest(&SHA256, body).as_ref().iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use http::Request;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    /// The vectors of AWS that come with aws-sigv4: requests, each with the answer.
    fn vectors() -> PathBuf {
        let metadata = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--format-version=1",
                "--locked",
                "--offline",
                "--filter-platform=x86_64-unknown-linux-gnu",
            ])
            .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
            .output()
            .unwrap();
        let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let package = packages.iter().find(|package| package["name"] == "aws-sigv4").unwrap();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        manifest.with_file_name("aws-signing-test-suite").join("v4")
    }

    /// A request as a vector has it, with lines that go on put together. `None`: it is none that hyper would send.
    fn parsed(text: &str) -> Option<(Parts, Vec<u8>)> {
        let text = text.replace("\r\n", "\n");
        let (head, body) = text.split_once("\n\n").unwrap_or((&text, ""));
        let head = head.replace("\n ", " ");
        let mut lines = head.trim_end().lines();
        let (method, rest) = lines.next()?.split_once(' ')?;
        let mut request = Request::builder().method(method).uri(rest.strip_suffix(" HTTP/1.1")?);
        for line in lines {
            let (name, value) = line.split_once(':')?;
            request = request.header(name, value.trim());
        }
        Some((request.body(()).ok()?.into_parts().0, body.into()))
    }

    #[test]
    fn the_vectors_of_aws_have_our_signatures() {
        let (mut signed, mut left) = (0, BTreeSet::new());
        for vector in std::fs::read_dir(vectors()).unwrap() {
            let vector = vector.unwrap().path();
            let name = vector.file_name().unwrap().to_str().unwrap().to_owned();
            let read = |file: &str| std::fs::read_to_string(vector.join(file)).unwrap_or_default();
            // One of an older format came along without.
            let older = || {
                json!({
                    "credentials": {"access_key_id": "ANOTREAL", "secret_access_key": "notrealrnrELgWzOk3IfjzDKtFBhDby"},
                    "region": "us-east-1", "service": "service", "timestamp": "2015-08-30T12:36:00Z", "normalize": true,
                })
            };
            let context = serde_json::from_str::<Value>(&read("context.json")).unwrap_or_else(|_| older());
            let text = |pointer: &str| context.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            // As for S3 alone, for which nobody signs here; and one whose token is not signed.
            let is_other =
                context["normalize"] != true || context["sign_body"] == true || context["omit_session_token"] == true;
            // The path of one has a blank, which no request can have.
            let is_sent = parsed(&read("header-signed-request.txt")).is_some();
            let Some((mut head, body)) = parsed(&read("request.txt")).filter(|_| is_sent && !is_other) else {
                left.insert(name);
                continue;
            };
            let token = context.pointer("/credentials/token").and_then(Value::as_str).map(str::to_owned);
            let (key, secret) = (text("/credentials/access_key_id"), text("/credentials/secret_access_key"));
            let session = Session(Credentials::new(key, secret, token, None, "vector"));
            let scope = Scope { region: text("/region").into(), service: text("/service").into() };
            let time: Timestamp = text("/timestamp").parse().unwrap();
            scope.sign(&session, &mut head, &body, time.into()).unwrap();
            let expected = read("header-signed-request.txt");
            for header in ["authorization", "x-amz-date", "x-amz-security-token"] {
                let lines = expected.lines().filter_map(|line| line.split_once(':'));
                let mut values =
                    lines.filter(|(name, _)| name.eq_ignore_ascii_case(header)).map(|(_, value)| value.trim());
                let ours = head.headers.get(header).map(|value| value.to_str().unwrap());
                assert_eq!(ours, values.next(), "{name}: {header}");
            }
            signed += 1;
        }
        assert_eq!((signed, left.len()), (28, 12), "{left:?}");
    }

    #[test]
    fn a_signature_covers_what_the_server_acts_on() {
        let scope = Scope { region: "eu-central-1".into(), service: "aws-mcp".into() };
        let session = Session::new("key", "s3cr3t", "t0ken");
        let time = "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap().into();
        let signature = |target: &str, headers: &[(&str, &str)], body: &str| {
            let mut request = Request::post(target).header("host", "a.example");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            scope.sign(&session, &mut head, body.as_bytes(), time).unwrap();
            assert!(!format!("{:?}", head.headers).contains("t0ken"), "a token would be shown");
            head.headers["authorization"].to_str().unwrap().to_owned()
        };
        let of_all = signature("/mcp?a=1", &[], "{}");
        for (target, headers, body, changes) in [
            (
                "/mcp?a=1",
                &[("user-agent", "other"), ("x-forwarded-for", "192.0.2.1"), ("traceparent", "00-1-1-00")][..],
                "{}",
                false,
            ),
            ("/other?a=1", &[], "{}", true),
            ("/mcp?a=2", &[], "{}", true),
            ("/mcp?a=1", &[], "[]", true),
            ("/mcp?a=1", &[("mcp-session-id", "1")], "{}", true),
            ("/mcp?a=1", &[("content-type", "application/json")], "{}", true),
        ] {
            assert_eq!(signature(target, headers, body) != of_all, changes, "{target} {headers:?} {body}");
        }
        assert!(!format!("{session:?}").contains("s3cr3t") && !format!("{session:?}").contains("t0ken"));
    }
}
