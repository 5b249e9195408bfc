//! Common parts of validating and mutating webhooks: the requests that reach a handler, and its arguments.

use futures::future::BoxFuture;
use kube_core::Resource;
use portcullis_manifest::KnownScope;
use portcullis_review::{
    BoxError, DecodeError, Operation, Patch, PatchError, Request, Verdict, changes_only_metadata_and_status, decode,
    decode_without_managed_fields, error_chain, is_being_deleted,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Context;
use super::settings::Settings;

/// A kind that handlers can be registered for: every type that derives `kube::CustomResource`, and every kind of
/// k8s-openapi.
pub trait AdmissionObject:
    Resource<DynamicType = (), Scope: KnownScope> + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> AdmissionObject for K where
    K: Resource<DynamicType = (), Scope: KnownScope> + DeserializeOwned + Send + Sync + 'static
{
}

/// A registered webhook with its type taken away.
pub(super) trait Admit: Send + Sync + 'static {
    fn settings(&self) -> &Settings;
    /// Has the handler of the request's operation decide.
    fn call_handler<'a>(
        &'a self,
        request: &'a Request<'a>,
        context: Context,
    ) -> BoxFuture<'a, Result<Decision, Failure>>;
}

impl dyn Admit {
    /// Decides a request.
    pub(super) async fn admit(&self, request: &Request<'_>, context: Context) -> Result<Decision, Failure> {
        self.settings().subject.screen(request)?;
        match exempt(request) {
            Some(decision) => Ok(decision),
            None => self.call_handler(request, context).await.or_else(Failure::into_decision),
        }
    }
}

/// The answer, and a note for the log.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) verdict: Verdict,
    pub(super) patch: Option<Patch>,
    /// The reason for the log, where it is not the denial's message.
    pub(super) note: Option<String>,
}

impl Decision {
    /// The handler's own.
    pub(super) fn by_handler(verdict: Verdict) -> Self {
        Self { verdict, patch: None, note: None }
    }

    /// Allows a request that the handler does not decide.
    pub(super) fn skipped(why: &str) -> Self {
        Self { verdict: Verdict::allow(), patch: None, note: Some(why.to_owned()) }
    }
}

/// The message for the user when a handler failed or panicked.
pub(super) const HANDLER_FAILED: &str = "handler failed";

/// The reason why there is no decision. It becomes an HTTP error, so that the failure policy decides.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The error is for the log alone, because it may contain secrets.
    #[error("{}: {}", HANDLER_FAILED, error_chain(&**.0))]
    Handler(BoxError),
    #[error("this webhook handles {expected}, not {found}; generate its configuration again")]
    Kind { expected: String, found: String },
    #[error("this webhook handles {expected}, not {found}; generate its configuration again")]
    Resource { expected: String, found: String },
    #[error("this webhook has no handler for {0}; generate its configuration again")]
    NoHandler(String),
    #[error("{0} came without the object that it is about")]
    NoObject(Operation),
    /// An object of the request does not decode: the one failure that is a denial.
    #[error("an object of the request does not decode")]
    Undecoded(Box<Decision>),
    #[error("cannot build an admission review for the object: {0}")]
    Unreadable(String),
    #[error("cannot make a patch for the edited object: {0}")]
    Patch(#[from] PatchError),
    #[error("the handler's object does not round-trip through its type: {0}")]
    Unstable(String),
}

impl Failure {
    /// The decision, if this failure is one.
    fn into_decision(self) -> Result<Decision, Self> {
        match self {
            Self::Undecoded(decision) => Ok(*decision),
            failure => Err(failure),
        }
    }
}

/// Exempts from all rules an update of an object that is being deleted which changes only `metadata` or `status`, so
/// that finalizers can always go, and with them the object and its namespace. The object is not even decoded. An update
/// of anything else is validated like any other. So is the match condition of the generated configurations
/// (`portcullis_manifest`, `deletion.rs`), which exempts the same while the webhook is down.
///
/// A further DELETE is allowed too: the first one was validated, and all that another changes is metadata.
///
/// Only what is stored says that an object is being deleted: in what a client sends, `deletionTimestamp` is a claim.
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
