//! Common parts of validating and mutating webhooks: the requests that reach a handler, and its arguments.

use futures::future::BoxFuture;
use portcullis_review::{
    DecodeError, Operation, Request, Verdict, changes_only_metadata_and_status, decode, decode_without_managed_fields,
    is_being_deleted,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Context;
use super::decision::{Decision, Failure};
use super::settings::Settings;

/// A registered webhook with its type taken away.
pub(super) trait Admit: Send + Sync + 'static {
    fn settings(&self) -> &Settings;
    /// Calls the handler of the request's operation.
    fn call_handler<'a>(
        &'a self,
        request: &'a Request<'a>,
        context: Context,
    ) -> BoxFuture<'a, Result<Decision, Failure>>;
}

impl dyn Admit {
    /// Decides a request, without the handler where it is [exempt].
    pub(super) async fn admit(&self, request: &Request<'_>, context: Context) -> Result<Decision, Failure> {
        self.settings().subject.screen(request)?;
        match exempt(request) {
            Some(decision) => Ok(decision),
            None => self.call_handler(request, context).await.or_else(Failure::into_decision),
        }
    }
}

/// Allows some requests for an object that is being deleted, without decoding it and without calling a handler:
///
/// - an update that changes only `metadata` or `status`, so that finalizers can be removed even from an invalid object,
///   and its deletion can finish. The match conditions of the generated configuration (`deletion.rs` of
///   `portcullis-manifest`) exempt the same updates, so that this also works while the webhook is down;
/// - a further DELETE: the first one was validated, and another one changes nothing but metadata.
///
/// The stored object decides whether it is being deleted, because a client can send any `deletionTimestamp`. For all
/// other requests the result is `None`.
fn exempt(request: &Request<'_>) -> Option<Decision> {
    let old = request.old_object.filter(|old| is_being_deleted(old))?;
    let why = match request.operation {
        Operation::Delete => "the object is being deleted already",
        Operation::Update if is_finalize(request) => {
            "skipping validation for resource being deleted: only finalizers change"
        }
        Operation::Update if changes_only_metadata_and_status(old, request.object?) => {
            "skipping validation for resource being deleted: only metadata or status change"
        }
        _ => return None,
    };
    Some(Decision::skipped(why))
}

/// Whether it is an update of `namespaces/finalize`, which changes nothing but the finalizers that Namespaces alone
/// keep in `spec`.
fn is_finalize(Request { resource, sub_resource, .. }: &Request<'_>) -> bool {
    resource.group.is_empty() && resource.resource == "namespaces" && sub_resource == "finalize"
}

/// An object of the request as text.
pub(super) fn text<'r>(request: &Request<'_>, object: Option<&'r RawValue>) -> Result<&'r str, Failure> {
    object.map(RawValue::get).ok_or(Failure::NoObject(request.operation))
}

/// Decodes an object, without managed fields unless handlers read them.
pub(super) fn decoded<T: DeserializeOwned>(text: &str, managed_fields: bool) -> Result<T, DecodeError> {
    if managed_fields { decode(text) } else { decode_without_managed_fields(text) }
}

/// Decodes the new object.
pub(super) fn new_object<T: DeserializeOwned>(request: &Request<'_>, settings: &Settings) -> Result<T, Failure> {
    let text = text(request, request.object)?;
    decoded(text, settings.managed_fields).map_err(|error| undecoded(request, &error, "the object"))
}

/// Denies a request whose object does not decode: a handler cannot validate it, and the message names the field.
pub(super) fn undecoded(request: &Request<'_>, error: &DecodeError, which: &str) -> Failure {
    let kind = &request.kind.kind;
    let field = error.path.trim_start_matches('.');
    let verdict = Verdict::deny(format!("{which} does not decode as {kind}: {error}")).cause(field, &error.problem);
    // The problem may repeat a value of the object, and objects stay out of the log.
    let note = Some(format!("{which} does not decode as {kind} at {}", error.path));
    Failure::Undecoded(Box::new(Decision { verdict, patch: None, note }))
}
