//! The defaults of a Backup.

use portcullis::webhooks::{Context, Mutate, Mutation};

use crate::v1::Backup;

/// The mutating webhook.
pub(crate) fn defaults() -> Mutate<Backup> {
    Mutate::<Backup>::new("defaults").on_create_or_update(fill)
}

async fn fill(mut new: Backup, _: Context) -> Mutation<Backup> {
    new.spec.schedule.get_or_insert_with(|| "0 3 * * *".to_owned());
    let labels = new.metadata.labels.get_or_insert_default();
    labels.insert("tutorial.example/volume".to_owned(), new.spec.volume.clone());
    Mutation::modified(new)
}
