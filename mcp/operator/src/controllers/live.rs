//! Finds the referrers of an object, by the current state of the API server.
//!
//! The stores follow the API server by watches, which may lag behind, and what refers to an object that does not decode is
//! not known there. Where a wrong answer cannot be taken back, the API server is asked.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use mcp_api::names::GROUP;
use mcp_plan::{
    digest::DigestKey,
    reference::{Entries, Entry, token},
};
use portcullis::controller::ControllerError;
use serde_json::Value;

use super::request::in_time;
use crate::subject::{self, Subject};

/// Deadline of a question whose answer is a warning at most.
const ADVICE: Duration = Duration::from_secs(1);

/// Objects that are asked for at once.
pub(super) const PAGE: u32 = 500;

/// The names of the objects of kind `K` in a namespace that refer to the one of this kind and name, or may. They are asked
/// for in pages of `page` objects.
///
/// # Errors
/// The API server does not answer, or does not let the client list them.
pub async fn referrers<K: Subject>(
    client: &Client,
    namespace: &str,
    kind: &str,
    name: &str,
    page: u32,
) -> Result<Vec<String>, ControllerError> {
    let refers = |object: &DynamicObject| may_refer::<K>(object, kind, name);
    named(client, namespace, &ApiResource::erase::<K>(&()), page, refers).await
}

/// The names of the objects of a namespace of which `refers` is true.
async fn named(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
    page: u32,
    refers: impl Fn(&DynamicObject) -> bool,
) -> Result<Vec<String>, ControllerError> {
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let mut params = ListParams::default().limit(page);
    let mut found = Vec::new();
    loop {
        let what = || format!("{} in {namespace}", resource.plural);
        let Some(page) = in_time("list", what, served(objects.list(&params))).await? else { return Ok(found) };
        let referring = page.items.iter().filter(|object| refers(object));
        found.extend(referring.map(DynamicObject::name_any));
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(found),
        }
    }
}

/// A kind of ToolHive's that has no controller here: its objects are looked at before a configuration that they refer to goes.
#[derive(Clone, Copy, Debug)]
pub struct Outsider {
    /// The kind.
    pub kind: &'static str,
    /// The name of its objects in the API.
    pub plural: &'static str,
    /// The kind that it refers to.
    pub of: &'static str,
    /// The JSON pointer of the name in its objects.
    pub name: &'static str,
}

impl Outsider {
    /// The names of its objects in a namespace that refer to the one of this name; none where the kind is not served.
    pub(super) async fn referrers(
        &self,
        client: &Client,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<String>, ControllerError> {
        let kind = GroupVersionKind::gvk(GROUP, "v1beta1", self.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.plural);
        let refers = |object: &DynamicObject| object.data.pointer(self.name).and_then(Value::as_str) == Some(name);
        named(client, namespace, &resource, PAGE, refers).await
    }
}

/// Whether there is no object of this name; false where the API server does not say so in time. It is asked by a list, which the
/// rights of a watch allow.
pub(super) async fn is_missing(client: Client, resource: &ApiResource, namespace: &str, name: &str) -> bool {
    let objects: Api<DynamicObject> = Api::namespaced_with(client, namespace, resource);
    let params = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
    let list = tokio::time::timeout(ADVICE, objects.list_metadata(&params)).await;
    list.is_ok_and(|list| list.is_ok_and(|list| list.items.is_empty()))
}

/// The ConfigMaps of these names with their texts: those that the API server shows in time. Nothing compares their digests.
pub(super) async fn config_maps(client: Client, namespace: &str, names: BTreeSet<&str>) -> Entries {
    let api: Api<ConfigMap> = Api::namespaced(client, namespace);
    let key = DigestKey::new(&[]);
    let mut found = Entries::new();
    for name in names {
        let Ok(Ok(Some(map))) = tokio::time::timeout(ADVICE, api.get_opt(name)).await else { continue };
        let text = map.data.into_iter().flatten().map(|(at, text)| (at, Entry::of_text(text.as_bytes(), &key)));
        found.insert(name.to_owned(), text.collect());
    }
    found
}

/// None where the kind is not served (any more): there are no objects of it. Kinds are removed together, in any order.
async fn served<T>(answer: impl Future<Output = kube::Result<T>>) -> kube::Result<Option<T>> {
    match answer.await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => answer.map(Some),
    }
}

/// One that does not decode may refer to whatever its spec has the name of.
fn may_refer<K: Subject>(object: &DynamicObject, kind: &str, name: &str) -> bool {
    match object.clone().try_parse::<K>() {
        Ok(object) => subject::tokens(&object).contains(&token(kind, name)),
        Err(_) => has_text(&object.data["spec"], name),
    }
}

fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found == text,
        Value::Array(values) => values.iter().any(|value| has_text(value, text)),
        Value::Object(members) => members.values().any(|value| has_text(value, text)),
        _ => false,
    }
}
