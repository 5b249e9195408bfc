//! The objects of one kind, page by page.

use futures::{StreamExt as _, stream};
use kube::api::{DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use serde_json::json;

use crate::MigrateError;
use crate::plan::Plan;
use crate::tries::{NoAnswer, tried};

#[cfg(test)]
mod tests;

/// Objects that are listed at a time.
const PAGE: u32 = 500;
/// Objects that are written at the same time.
const WRITES: usize = 16;
/// Objects that are refused and named; of more, only the number is kept.
const NAMED: usize = 1000;
/// Objects that could not be written though nothing is known to be wrong with them: after so many, it is the API server
/// that is not well.
const MOST_FAILED: usize = 20;
/// A list that takes longer than the API server remembers is begun again, this often.
const LISTS: u32 = 10;

/// Counts of the objects of one CRD, by what became of each.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Objects that were written in the storage version.
    pub rewritten: usize,
    /// Objects that were in the storage version already, or were not written because it is a dry run.
    pub unchanged: usize,
    /// Objects that were deleted before they were written.
    pub gone: usize,
    /// Objects that the API server did not write.
    pub refused: Refused,
    /// The number of refused objects whose refusal does not blame the object itself.
    #[serde(skip)]
    failed: usize,
}

/// Objects that stay in an old version, because the API server did not write them.
#[derive(Debug, Default, Serialize)]
pub struct Refused {
    /// Number of these objects.
    pub count: usize,
    /// The first thousand of them.
    pub objects: Vec<Refusal>,
}

/// An object that the API server refuses to store again.
#[derive(Debug, Serialize)]
pub struct Refusal {
    /// Namespace of the object; empty for a cluster-scoped one.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Message of the API server.
    pub reason: String,
}

enum Written {
    Rewritten,
    Unchanged,
    Gone,
    Failed(String, NoAnswer),
}

/// All objects of one kind, in every namespace.
pub(crate) struct Objects<'a> {
    writer: Writer<'a>,
    pub tally: Tally,
}

/// Writes one of them.
struct Writer<'a> {
    client: &'a Client,
    plan: &'a Plan,
    params: PatchParams,
}

type Metadata = PartialObjectMeta<DynamicObject>;

impl<'a> Objects<'a> {
    pub(crate) fn new(client: &'a Client, plan: &'a Plan, params: PatchParams) -> Self {
        Self { writer: Writer { client, plan, params }, tally: Tally::default() }
    }

    /// Writes them all. After each page, calls `progress` with how many are done and, where the API server says it, how
    /// many are left.
    pub(crate) async fn rewrite(&mut self, mut progress: impl FnMut(usize, Option<usize>)) -> Result<(), MigrateError> {
        let Self { writer, tally } = self;
        let all: Api<DynamicObject> = Api::all_with(writer.client.clone(), &writer.plan.resource);
        let mut page = ListParams::default().limit(PAGE);
        let (mut done, mut lists) = (0, 1);
        loop {
            let list = match tried(|| all.list_metadata(&page)).await {
                Ok(list) => list,
                Err(error) if error.code() == Some(410) && lists < LISTS => {
                    // Objects that were written already are in the storage version and are not written again.
                    (page.continue_token, done, lists, *tally) = (None, 0, lists + 1, Tally::default());
                    continue;
                }
                Err(error) => return Err(MigrateError::api("list the objects")(error)),
            };
            let objects = list.items.len();
            let mut written = stream::iter(list.items).map(|object| writer.write(object)).buffer_unordered(WRITES);
            while let Some((object, result)) = written.next().await {
                tally.count(&object, result)?;
            }
            done += objects;
            let left = list.metadata.remaining_item_count.and_then(|left| usize::try_from(left).ok());
            page.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
            progress(done, if page.continue_token.is_none() { Some(0) } else { left });
            if page.continue_token.is_none() {
                return Ok(());
            }
        }
    }
}

impl Writer<'_> {
    /// Has the API server write the object as it is. It does so only if what is stored is not what it would write now:
    /// when it is in another version.
    async fn write(&self, object: Metadata) -> (Metadata, Written) {
        let (client, resource) = (self.client.clone(), &self.plan.resource);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client, &namespace, resource),
            None => Api::all_with(client, resource),
        };
        let name = object.name_any();
        let patch = Patch::Merge(json!({}));
        let written = match tried(|| api.patch_metadata(&name, &self.params, &patch)).await {
            Ok(now) if now.resource_version() == object.resource_version() => Written::Unchanged,
            Ok(_) => Written::Rewritten,
            Err(error) if error.code() == Some(404) => Written::Gone,
            Err(error) => Written::Failed(error.to_string(), error),
        };
        (object, written)
    }
}

impl Tally {
    /// Counts what became of an object.
    ///
    /// # Errors
    /// When so many could not be written that the rest need not be tried.
    fn count(&mut self, object: &Metadata, written: Written) -> Result<(), MigrateError> {
        let Self { rewritten, unchanged, gone, refused, failed } = self;
        match written {
            Written::Rewritten => *rewritten += 1,
            Written::Unchanged => *unchanged += 1,
            Written::Gone => *gone += 1,
            Written::Failed(reason, error) => {
                refused.count += 1;
                if refused.objects.len() < NAMED {
                    let namespace = object.namespace().unwrap_or_default();
                    refused.objects.push(Refusal { namespace, name: object.name_any(), reason: reason.clone() });
                }
                *failed += usize::from(!error.refused());
                if *failed > MOST_FAILED {
                    return Err(MigrateError::Unwritable { count: MOST_FAILED, reason });
                }
            }
        }
        Ok(())
    }
}
