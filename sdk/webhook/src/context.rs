//! The request around the objects that a handler gets.

use kube_core::{GroupVersionKind, Resource};
use portcullis_manifest::SideEffects;
use portcullis_review::{DecodeError, GroupVersionResource, Operation, Request, UserInfo, decode};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The admission request without its objects: user, operation, options, dry run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Context {
    /// UID of the review. Empty outside of admission.
    pub uid: String,
    /// Operation of the request.
    pub operation: Operation,
    /// User who makes the request. Empty outside of admission.
    pub user: UserInfo,
    /// Whether the request is a dry run: nothing will be stored, and the handler must have no side effects.
    pub dry_run: bool,
    /// Namespace of the object; none for cluster-wide kinds.
    pub namespace: Option<String>,
    /// Name of the object; none where older API servers have yet to make one from `generateName`, and none where a
    /// collection is deleted (see the metadata of the object).
    pub name: Option<String>,
    /// Kind of the object as the handler gets it.
    pub kind: GroupVersionKind,
    /// Resource of that kind.
    pub resource: GroupVersionResource,
    /// Subresource of the request, such as `status`; none for the object itself.
    pub sub_resource: Option<String>,
    /// Kind as the client sent it: another than `kind` where the API server converted the object for this webhook. None
    /// without a request: while webhooks are off, in `explain`, and in [`from_stored`](Self::from_stored).
    pub request_kind: Option<GroupVersionKind>,
    /// Resource that the client requested; none where `request_kind` is none.
    pub request_resource: Option<GroupVersionResource>,
    options: Option<Box<RawValue>>,
    permit: Option<Permit>,
}

/// Proof that a handler may have side effects. Only [`Context::permit`] returns one: require it in the signature of
/// functions that do IO for a handler, and a dry run cannot call them.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Service;
/// use portcullis_webhook::{Context, Permit, Validate, Verdict};
///
/// async fn reserve(_: &Permit, name: &str) { /* takes the name in a registry elsewhere */ }
///
/// let webhook = Validate::<Service>::new("names").side_effects().on_create(|new: Arc<Service>, cx: Context| async move {
///     if let (Some(permit), Some(name)) = (cx.permit(), &new.metadata.name) {
///         reserve(&permit, name).await;
///     }
///     Verdict::allow()
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Permit(());

impl Context {
    pub(super) fn of_request(request: &Request<'_>, side_effects: SideEffects) -> Self {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let dry_run = request.dry_run.unwrap_or_default();
        Self {
            uid: request.uid.to_string(),
            operation: request.operation,
            user: request.user_info.clone(),
            dry_run,
            namespace: some(&request.namespace),
            name: some(&request.name),
            kind: request.kind.clone(),
            resource: request.resource.clone(),
            sub_resource: some(&request.sub_resource),
            request_kind: request.request_kind.clone(),
            request_resource: request.request_resource.clone(),
            options: request.options.map(ToOwned::to_owned),
            permit: (!dry_run && side_effects == SideEffects::NoneOnDryRun).then_some(Permit(())),
        }
    }

    /// Builds the context for a controller that calls a handler with a stored object: CREATE without user and uid, as a
    /// dry run.
    pub fn from_stored<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            uid: String::new(),
            operation: Operation::Create,
            user: UserInfo::default(),
            dry_run: true,
            namespace: object.meta().namespace.clone(),
            name: object.meta().name.clone(),
            kind: GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&())),
            resource: GroupVersionResource {
                group: K::group(&()).into_owned(),
                version: K::version(&()).into_owned(),
                resource: K::plural(&()).into_owned(),
            },
            sub_resource: None,
            request_kind: None,
            request_resource: None,
            options: None,
            permit: None,
        }
    }

    /// Returns permission to have side effects; `None` in a dry run, and for a webhook that did not declare
    /// [`side_effects`](super::Validate::side_effects).
    pub fn permit(&self) -> Option<Permit> {
        self.permit.clone()
    }

    /// Decodes the options of the request, such as
    /// [`DeleteOptions`](k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions); `None` when it has none.
    ///
    /// # Errors
    /// When the options do not decode as `T`.
    pub fn options<T: DeserializeOwned>(&self) -> Result<Option<T>, DecodeError> {
        self.options.as_deref().map(|options| decode(options.get())).transpose()
    }
}
