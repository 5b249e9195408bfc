//! Evaluates the registered validators without the API server: for a controller while webhooks are off, and for a
//! manifest.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{ApiResource, GroupVersionKind, Selector, SelectorExt as _};
use portcullis_manifest::{NAMESPACE_NAME, SideEffects, Webhook, WebhookKind};
use portcullis_review::{Operation, Review, Verdict};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::admit::Admit;
use super::decision::Failure;
use super::{Context, Webhooks};

/// The result of one webhook for an object.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// Name of the webhook.
    pub webhook: String,
    /// The verdict, or why there is none: the handler failed (with the text of its error), panicked, or exceeded the
    /// webhook's timeout.
    pub verdict: Result<Verdict, String>,
    /// Resources of the caches that the webhook reads and that are not filled (`regions.shop.example`). Its handler was
    /// not called then, since it would find no objects there.
    pub unfilled: Vec<String>,
}

impl Webhooks {
    /// Evaluates every registered validating webhook that the API server would call when `object` is created, in the
    /// order of registration. `object` needs `apiVersion` and `kind`. Nothing is requested from the API server or
    /// written.
    ///
    /// An object of another version than the webhook's is converted first, if the kind has a conversion. Compared with
    /// a request to the API server:
    ///
    /// - there is no old object, so that handlers of updates ([`on_update`](super::Validate::on_update)) are not
    ///   called;
    /// - there is no user, and the request is a dry run without a permit ([`Context::permit`]);
    /// - object selectors are evaluated, namespace selectors only by the namespace's name; match conditions count as
    ///   true;
    /// - mutating webhooks, the schema and CEL rules are not evaluated, including those of
    ///   [policies](super::Validate::cel).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use portcullis_webhook::{Context, Validate, Verdict, Webhooks};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let not_empty = |new: Arc<ConfigMap>, _: Context| async move {
    ///     if new.data.is_some() { Verdict::allow() } else { Verdict::deny("data is empty") }
    /// };
    /// let webhooks = Webhooks::new().validate(Validate::<ConfigMap>::new("not-empty").on_create(not_empty));
    /// let object = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    /// let said = webhooks.explain(&object).await;
    /// assert_eq!(said[0].webhook, "not-empty");
    /// assert_eq!(said[0].verdict.as_ref().unwrap().denial().unwrap().message(), "data is empty");
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn explain(&self, object: &Value) -> Vec<Evaluation> {
        let text = |member: &str| object.get(member).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, kind);
        // Only webhooks for untyped objects go by the resource; kube's guess at its name is the usual one.
        let resource = ApiResource::from_gvk(&kind);
        let mut evaluations = Vec::new();
        for webhook in &self.registered {
            let settings = webhook.settings();
            let unfilled: Vec<String> = settings.unfilled().map(|source| source.resource()).collect();
            if !unfilled.is_empty() {
                if self.is_for(&**webhook, &resource, object) {
                    let verdict = Err(format!("not evaluated: reads {}", unfilled.join(", ")));
                    evaluations.push(Evaluation { webhook: settings.shown_name().to_owned(), verdict, unfilled });
                }
                continue;
            }
            let asked = self.ask(&**webhook, &kind, &resource.plural, object);
            let seconds = self.overrides.timeout_seconds.map(|seconds| Duration::from_secs(seconds.into()));
            let patience = seconds.unwrap_or(settings.timeout());
            let asked = AssertUnwindSafe(tokio::time::timeout(patience, asked)).catch_unwind().await;
            let verdict = match asked {
                Ok(Ok(None)) => continue,
                Ok(Ok(Some(verdict))) => verdict,
                Ok(Err(_)) => Err(format!("handler did not finish within {} s", patience.as_secs())),
                Err(_) => Err("handler panicked".to_owned()),
            };
            evaluations.push(Evaluation { webhook: settings.shown_name().to_owned(), verdict, unfilled });
        }
        evaluations
    }

    /// The verdict of one webhook; `None` when it is not called for such an object.
    async fn ask(
        &self,
        webhook: &dyn Admit,
        kind: &GroupVersionKind,
        plural: &str,
        object: &Value,
    ) -> Option<Result<Verdict, String>> {
        let manifest = webhook.settings().entry.clone().with_overrides(&self.overrides);
        let creates = manifest.rules.iter().any(|rule| rule.operations.contains(&Operation::Create));
        if manifest.kind != WebhookKind::Validating || !creates || !selected(&manifest, object) {
            return None;
        }
        let mut evaluated = evaluate(webhook, kind, plural, object).await;
        if let Err(Failure::Kind { .. }) = evaluated {
            let converted = self.converted(webhook.settings().subject.kind()?, kind, object)?;
            evaluated = evaluate(webhook, webhook.settings().subject.kind()?, plural, &converted).await;
        }
        match evaluated {
            Ok(verdict) => Some(Ok(verdict)),
            // This webhook is for other objects.
            Err(Failure::Kind { .. } | Failure::Resource { .. } | Failure::NoHandler(_)) => None,
            Err(failure) => Some(Err(failure.to_string())),
        }
    }

    /// Fills each cache that webhooks read with the objects of its kind, so that [`explain`](Self::explain) evaluates
    /// as if no others existed. Caches for whose kind `objects` has none are not changed. Returns one message for each
    /// cache with an object that does not decode.
    pub fn fill_caches(&self, objects: &[Value]) -> Vec<String> {
        let mut problems = Vec::new();
        for source in self.sources() {
            let text = |object: &Value, member: &str| {
                object.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            let of_kind = objects.iter().filter_map(|object| {
                let api_version = text(object, "apiVersion");
                let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
                let from = GroupVersionKind::gvk(group, version, &text(object, "kind"));
                if from == *source.kind() { Some(object.clone()) } else { self.converted(source.kind(), &from, object) }
            });
            let of_kind: Vec<Value> = of_kind.collect();
            if of_kind.is_empty() {
                continue;
            }
            let resource = source.resource();
            if let Err(error) = source.fill(&of_kind) {
                problems.push(format!("{resource}: an object does not decode: {error}"));
            }
        }
        problems
    }

    /// Whether the webhook is called when such an object is created, as far as is known without calling it.
    fn is_for(&self, webhook: &dyn Admit, resource: &ApiResource, object: &Value) -> bool {
        let manifest = webhook.settings().entry.clone().with_overrides(&self.overrides);
        let named = |names: &[String], name: &str| names.iter().any(|it| it == name || it == "*");
        let ruled = manifest.rules.iter().any(|rule| {
            let whole = rule.resources.iter().any(|it| it == "*/*");
            rule.operations.contains(&Operation::Create)
                && named(&rule.groups, &resource.group)
                && (whole || webhook.settings().subject.kind().is_some() || named(&rule.resources, &resource.plural))
        });
        let kind = webhook.settings().subject.kind().is_none_or(|only| only.kind == resource.kind);
        manifest.kind == WebhookKind::Validating && ruled && kind && selected(&manifest, object)
    }

    /// The object in this version.
    fn converted(&self, to: &GroupVersionKind, from: &GroupVersionKind, object: &Value) -> Option<Value> {
        if (&to.group, &to.kind) != (&from.group, &from.kind) {
            return None;
        }
        let conversions = self.conversions().ok()?;
        let conversion = conversions.iter().find(|it| it.group == to.group && it.kind == to.kind)?;
        let converted =
            conversion.engine.convert(&to_raw_value(object).ok()?, &format!("{}/{}", to.group, to.version)).ok()?;
        serde_json::from_str(&converted.object).ok()
    }
}

/// Evaluates the webhook as the API server would call it.
async fn evaluate(
    webhook: &dyn Admit,
    kind: &GroupVersionKind,
    plural: &str,
    object: &Value,
) -> Result<Verdict, Failure> {
    let name = |member: &str| object["metadata"][member].as_str().unwrap_or_default();
    let body = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "offline",
            "kind": { "group": kind.group, "version": kind.version, "kind": kind.kind },
            "resource": { "group": kind.group, "version": kind.version, "resource": plural },
            "name": name("name"),
            "namespace": name("namespace"),
            "operation": Operation::Create.as_str(),
            "userInfo": {},
            "object": object,
            "dryRun": true,
        },
    })
    .to_string();
    let review = Review::parse(body.as_bytes()).map_err(|error| Failure::Unreadable(error.to_string()))?;
    let context = Context::of_request(&review.request, SideEffects::None);
    Ok(webhook.admit(&review.request, context).await?.verdict)
}

/// Whether the webhook's selectors match the object, as far as the object alone shows it.
fn selected(webhook: &Webhook, object: &Value) -> bool {
    let metadata = object.get("metadata");
    let labels = metadata.and_then(|metadata| metadata.get("labels")).cloned();
    let labels: BTreeMap<String, String> =
        labels.and_then(|labels| serde_json::from_value(labels).ok()).unwrap_or_default();
    let namespace = metadata.and_then(|metadata| metadata.get("namespace")).and_then(Value::as_str);
    let by_labels = webhook.object_selector.as_ref().is_none_or(|selector| matches(selector, &labels));
    let by_namespace = webhook.namespace_selector.as_ref().zip(namespace).is_none_or(|(selector, namespace)| {
        let mut selector = selector.clone();
        // Other labels of the namespace are not known here: requirements on them count as met.
        let labels = selector.match_labels.get_or_insert_default();
        labels.retain(|key, _| key == NAMESPACE_NAME);
        let expressions = selector.match_expressions.get_or_insert_default();
        expressions.retain(|expression| expression.key == NAMESPACE_NAME);
        matches(&selector, &[(NAMESPACE_NAME.to_owned(), namespace.to_owned())].into())
    });
    by_labels && by_namespace
}

/// A selector that cannot be read selects all.
fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).map_or(true, |selector| selector.matches(labels))
}
