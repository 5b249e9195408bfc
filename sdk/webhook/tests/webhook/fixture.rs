//! The webhooks under test: a kind, handlers that behave well and badly, and a server with certificates of our own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use kube::{CustomResource, ResourceExt};
use portcullis::server::{Handler, Limits, Server, tls_config};
use portcullis::webhooks::{Context, Field, Mutate, Mutation, Validate, Verdict, Webhooks};
use portcullis_pki::{Ca, CertificateParams, Usage};
use rustls::ServerConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A type that knows less than its schema admits: `x-kubernetes-preserve-unknown-fields` is set on `spec`.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "demo.example", version = "v1", kind = "Entity", plural = "entities", namespaced)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub(crate) struct EntitySpec {
    pub(crate) username: String,
    /// Written by the type, absent from most objects, and not defaulted by the schema.
    #[serde(default = "one")]
    #[schemars(skip)]
    pub(crate) replicas: i32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub(crate) parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Part {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image: Option<String>,
}

fn one() -> i32 {
    1
}

async fn judge(new: Arc<Entity>, cx: Context) -> anyhow::Result<Verdict> {
    Ok(match new.spec.username.as_str() {
        "forbidden" => Verdict::deny("name may not be 'forbidden'.").code(422),
        "odd" => Verdict::from_causes([
            Field::new("spec.username").invalid("is odd"),
            Field::new("spec.parts").required("an odd one needs parts"),
        ]),
        "panic" => panic!("the handler met {}", new.spec.username),
        "fail" => return Err(anyhow::anyhow!("nobody answers").context("cannot look up the user")),
        "stuck" => std::future::pending().await,
        "old" => Verdict::allow().warn("spec.username 'old' is deprecated\nuse another").audit("checked", "yes"),
        "dry" if cx.dry_run => Verdict::deny("dry run seen").code(409),
        _ => Verdict::allow(),
    })
}

/// `username` and `strict` validate (the second denies when it fails), `defaults` mutates.
pub(crate) fn webhooks() -> Webhooks {
    Webhooks::new()
        .validate(
            Validate::<Entity>::new("username")
                .on_create(judge)
                .on_update(|old: Arc<Entity>, new: Arc<Entity>, _: Context| async move {
                    if old.spec.username != new.spec.username && new.spec.username == "forbidden" {
                        return Verdict::deny("name may not become 'forbidden'.")
                            .cause("spec.username", "may not become 'forbidden'");
                    }
                    Verdict::allow()
                })
                .on_delete(|old: Arc<Entity>, cx: Context| async move {
                    let options: Option<DeleteOptions> = cx.options().unwrap();
                    let grace = options.and_then(|options| options.grace_period_seconds);
                    if old.annotations().contains_key("protected") && grace != Some(0) {
                        return Verdict::deny(format!("{} may not delete it", cx.user.username)).code(403);
                    }
                    Verdict::allow()
                })
                .timeout(Duration::from_secs(4)),
        )
        .validate(Validate::<Entity>::new("strict").on_create(judge).deny_on_failure())
        .mutate(
            Mutate::<Entity>::new("defaults")
                .on_create(|mut new: Entity, _: Context| async move {
                    match new.spec.username.as_str() {
                        "overwrite" => new.spec.username = "random overwritten".into(),
                        "sidecar" => {
                            new.spec.parts.insert(0, Part { name: "proxy".into(), image: Some("p".into()) });
                            new.spec.parts.iter_mut().for_each(|part| {
                                part.image.get_or_insert_with(|| "default".into());
                            });
                            new.labels_mut().insert("demo.example/made".into(), "edited".into());
                        }
                        "same" => return Ok(Mutation::modified(new)),
                        "refused" => return Ok(Verdict::deny("not this one").code(418).into()),
                        "fail" => return Err("nobody answers"),
                        _ => return Ok(Mutation::unchanged()),
                    }
                    Ok(Mutation::modified(new).warn("the spec was completed"))
                })
                .on_delete(|_: Arc<Entity>, _: Context| async move { Verdict::allow().warn("seen going") }),
        )
}

/// A review of an Entity, as the API server would send it.
pub(crate) fn review(operation: &str, object: Value, old_object: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "e911857d-c318-11e8-bbad-025000000001", "operation": operation, "name": "one", "namespace": "ns",
            "kind": {"group": "demo.example", "version": "v1", "kind": "Entity"},
            "resource": {"group": "demo.example", "version": "v1", "resource": "entities"},
            "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
            "object": object, "oldObject": old_object, "dryRun": false, "options": null
        }
    })
}

pub(crate) fn entity(spec: Value) -> Value {
    json!({"apiVersion": "demo.example/v1", "kind": "Entity", "metadata": {"name": "one", "namespace": "ns"}, "spec": spec})
}

/// An authority and the TLS configuration of a server under it.
pub(crate) fn certificates(dns_names: &[&str]) -> (Ca, ServerConfig) {
    let (from, to) =
        (Timestamp::now() - SignedDuration::from_mins(1), Timestamp::now() + SignedDuration::from_hours(24));
    let ca = Ca::generate("test ca", from, to).unwrap();
    let names: Vec<String> = dns_names.iter().map(ToString::to_string).collect();
    let pair = ca
        .issue(&CertificateParams {
            common_name: "test",
            organizations: &[],
            dns_names: &names,
            ip_addresses: &[],
            not_before: from,
            not_after: to,
            usage: Usage::Server,
        })
        .unwrap();
    let config = tls_config(provider(), pair.cert_pem.as_bytes(), pair.key_pem.as_bytes()).unwrap();
    (ca, config)
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A server at work. Ends with the test.
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    pub(crate) ca: Ca,
    pub(crate) tls: Arc<ArcSwap<ServerConfig>>,
    pub(crate) stop: CancellationToken,
    pub(crate) ended: JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) async fn serve(handler: impl Handler, limits: Limits, dns_names: &[&str]) -> Serving {
    let (ca, config) = certificates(dns_names);
    let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), limits).await.unwrap();
    let address = server.local_addr().unwrap();
    let (tls, stop) = (Arc::new(ArcSwap::from_pointee(config)), CancellationToken::new());
    let ended = tokio::spawn(server.serve_tls(Arc::clone(&tls), Arc::new(handler), stop.clone()));
    Serving { address, ca, tls, stop, ended }
}

/// The patch of an answer.
pub(crate) fn patch_of(response: &Value) -> Option<Value> {
    use base64::Engine as _;
    let patch = response["patch"].as_str()?;
    assert_eq!(response["patchType"], "JSONPatch");
    let bytes = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
    Some(serde_json::from_slice(&bytes).unwrap())
}
