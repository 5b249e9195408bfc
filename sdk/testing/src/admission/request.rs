//! Admission requests, as the API server sends them.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use portcullis_manifest::{Webhook, WebhookKind};
use portcullis_webhook::Operation;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::target::{Target, Wanted, target};
use super::{Answer, Reviews};

/// A builder of an admission request, which [`validate`](Self::validate) or [`mutate`](Self::mutate) sends.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is sent to a webhook"]
pub struct Request<'r> {
    reviews: &'r Reviews,
    operation: Operation,
    object: Option<Value>,
    old_object: Option<Value>,
    user: String,
    groups: Vec<String>,
    dry_run: bool,
    namespace: Option<String>,
    name: Option<String>,
    sub_resource: String,
    options: Value,
}

impl Reviews {
    /// A request that creates this object: a typed one, or any JSON with `apiVersion` and `kind`.
    ///
    /// # Panics
    /// When the object does not serialise to a JSON object, as in the other requests.
    pub fn create(&self, object: &impl Serialize) -> Request<'_> {
        self.request(Operation::Create, Some(written(object)), None, "CreateOptions")
    }

    /// A request that changes an object from `old` to `new`.
    pub fn update(&self, old: &impl Serialize, new: &impl Serialize) -> Request<'_> {
        self.request(Operation::Update, Some(written(new)), Some(written(old)), "UpdateOptions")
    }

    /// A request that deletes this object.
    pub fn delete(&self, object: &impl Serialize) -> Request<'_> {
        self.request(Operation::Delete, None, Some(written(object)), "DeleteOptions")
    }

    /// A request that connects to an object, with the options of the connection (`PodExecOptions`): set the object's
    /// name with [`Request::name`] and the subresource with [`Request::sub_resource`].
    pub fn connect(&self, options: &impl Serialize) -> Request<'_> {
        let mut request = self.request(Operation::Connect, Some(written(options)), None, "");
        request.options = Value::Null;
        request
    }

    fn request(
        &self,
        operation: Operation,
        object: Option<Value>,
        old_object: Option<Value>,
        options: &str,
    ) -> Request<'_> {
        Request {
            reviews: self,
            operation,
            object,
            old_object,
            user: "tester".to_owned(),
            groups: vec!["system:authenticated".to_owned()],
            dry_run: false,
            namespace: None,
            name: None,
            sub_resource: String::new(),
            options: json!({"apiVersion": "meta.k8s.io/v1", "kind": options}),
        }
    }
}

impl Request<'_> {
    /// Sets the user of the request; `tester` by default. A service account (`system:serviceaccount:NAMESPACE:NAME`) is
    /// in the groups of service accounts.
    pub fn user(mut self, user: &str) -> Self {
        user.clone_into(&mut self.user);
        if let Some((namespace, _)) = user.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':'))
        {
            self.groups.push("system:serviceaccounts".to_owned());
            self.groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        self
    }

    /// Sets the groups of the user, in addition to `system:authenticated`.
    pub fn groups(mut self, groups: &[&str]) -> Self {
        self.groups.extend(groups.iter().map(|&group| group.to_owned()));
        self
    }

    /// Makes the request a dry run.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Sets the namespace; by default the object's own, or `default` for a namespaced kind.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Sets the name in the request; by default that of the object's metadata.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets the subresource: `status`, `scale`, `exec`. The object is then that of the subresource, a `Scale` for
    /// `scale`.
    pub fn sub_resource(mut self, sub_resource: &str) -> Self {
        sub_resource.clone_into(&mut self.sub_resource);
        self
    }

    /// Sets the options of the request, such as
    /// [`DeleteOptions`](k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions) as JSON; by default those of a
    /// client that sets none.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// Calls the validating webhook that is registered under this name.
    ///
    /// # Panics
    /// When there is none, its rules do not match the request, or the API server would reject the answer.
    pub async fn validate(self, name: &str) -> Answer {
        self.send(WebhookKind::Validating, name).await
    }

    /// Calls the mutating webhook that is registered under this name.
    ///
    /// # Panics
    /// As [`validate`](Self::validate).
    pub async fn mutate(self, name: &str) -> Answer {
        self.send(WebhookKind::Mutating, name).await
    }

    async fn send(mut self, kind: WebhookKind, name: &str) -> Answer {
        let webhook = self.reviews.webhook(kind, name);
        let review = self.review(webhook);
        let asked = asked(kind, name, &review["request"]);
        match self.reviews.post(&webhook.path, webhook.timeout_seconds, &review).await {
            Ok(body) => Answer::read(asked, &review["request"], &body).unwrap_or_else(|broken| panic!("{broken}")),
            Err((code, text)) => Answer::http_error(asked, code, &text),
        }
    }

    /// The whole review, and the objects as they travel in it.
    fn review(&mut self, webhook: &Webhook) -> Value {
        let subject = self.object.as_ref().or(self.old_object.as_ref()).unwrap_or(&Value::Null);
        let (group, version, kind) = group_version_kind(subject);
        let wanted = Wanted {
            operation: self.operation,
            group: &group,
            version: &version,
            kind: &kind,
            sub_resource: &self.sub_resource,
        };
        let Some(Target { group: on, version: at, plural, namespaced }) = target(webhook, &wanted) else {
            panic!(
                "the API server would not ask {} about {} of {group}/{version} {kind}{}: its rules are {:?}",
                webhook.name,
                self.operation,
                if self.sub_resource.is_empty() { String::new() } else { format!(" at /{}", self.sub_resource) },
                webhook.rules,
            )
        };
        let of = |field: &str| subject["metadata"][field].as_str().map(str::to_owned);
        let name = self.name.clone().or_else(|| of("name")).unwrap_or_default();
        let namespace = self.namespace.clone().or_else(|| of("namespace"));
        let namespace = namespace.or_else(|| namespaced.then(|| "default".to_owned())).unwrap_or_default();
        if self.operation != Operation::Connect {
            [&mut self.object, &mut self.old_object].into_iter().flatten().for_each(|object| place(object, &namespace));
        }
        let kind = json!({"group": group, "version": version, "kind": kind});
        let resource = json!({"group": on, "version": at, "resource": plural});
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": uuid::Uuid::new_v4().to_string(),
            "kind": kind, "resource": resource, "subResource": self.sub_resource,
            "requestKind": kind, "requestResource": resource, "requestSubResource": self.sub_resource,
            "name": name, "namespace": namespace, "operation": self.operation.as_str(),
            "userInfo": {"username": self.user, "groups": self.groups},
            "object": self.object, "oldObject": self.old_object, "dryRun": self.dry_run, "options": self.options,
        }})
    }
}

impl Reviews {
    /// Sends a review, as the API server does; an error is the code and the text of an HTTP error.
    pub(super) async fn post(&self, path: &str, seconds: u8, review: &Value) -> Result<Vec<u8>, (u16, String)> {
        let request = http::Request::post(format!("{path}?timeout={seconds}s"))
            .header("content-type", "application/json")
            .body(Full::from(review.to_string()))
            .unwrap_or_else(|error| panic!("nothing can be sent to {path}: {error}"));
        let (head, body) = self.routes.respond(request).await.into_parts();
        let body = body.collect().await.unwrap_or_else(|never| match never {}).to_bytes();
        if head.status == StatusCode::OK {
            return Ok(body.into());
        }
        Err((head.status.as_u16(), String::from_utf8_lossy(&body).trim_end().to_owned()))
    }

    /// Names are unique among the webhooks of a type, and the registered name begins with the one they were given.
    fn webhook(&self, kind: WebhookKind, name: &str) -> &Webhook {
        let mut of_kind = self.webhooks.iter().filter(|webhook| webhook.kind == kind);
        let named = |webhook: &&Webhook| webhook.name == name || webhook.name.split('.').next() == Some(name);
        of_kind.clone().find(named).unwrap_or_else(|| {
            let there: Vec<&str> = of_kind.by_ref().map(|webhook| webhook.name.as_str()).collect();
            panic!("no {} webhook is named '{name}'; there are {there:?}", kind.as_str().to_lowercase())
        })
    }

    /// Whether the webhook is called when such an object is created or changed.
    pub(super) fn takes(&self, kind: WebhookKind, name: &str, operation: Operation) -> bool {
        let rules = &self.webhook(kind, name).rules;
        rules.iter().any(|rule| rule.operations.contains(&operation))
    }
}

pub(super) fn written(object: &impl Serialize) -> Value {
    match serde_json::to_value(object) {
        Ok(value @ Value::Object(_)) => value,
        Ok(other) => panic!("not an object: {other}"),
        Err(error) => panic!("the object does not write as JSON: {error}"),
    }
}

pub(super) fn group_version_kind(object: &Value) -> (String, String, String) {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    assert!(!api_version.is_empty() && !kind.is_empty(), "the object has no apiVersion and kind: {object}");
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    (group.to_owned(), version.to_owned(), kind.to_owned())
}

/// Puts the namespace of the request into the object, as the API server does before it asks webhooks.
fn place(object: &mut Value, namespace: &str) {
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut().filter(|_| !namespace.is_empty()) {
        metadata.entry("namespace").or_insert_with(|| json!(namespace));
    }
}

/// The question in one line, for messages.
fn asked(kind: WebhookKind, name: &str, request: &Value) -> String {
    let text = |pointer: &str| request.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let join = |separator: &str, first: &str, second: &str| match (first, second) {
        ("", some) | (some, "") => some.to_owned(),
        (first, second) => format!("{first}{separator}{second}"),
    };
    format!(
        "{} webhook '{name}' on {} of {} {} {} by {}{}",
        kind.as_str().to_lowercase(),
        text("/operation"),
        join("/", text("/kind/group"), text("/kind/version")),
        join("/", text("/kind/kind"), text("/subResource")),
        join("/", text("/namespace"), text("/name")),
        text("/userInfo/username"),
        if request["dryRun"] == true { " (dry run)" } else { "" },
    )
}
