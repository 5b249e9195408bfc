//! The requests: each write is conditional on the version that was read.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::LeaseError;
use crate::elector::Write;
use crate::record::{INSTALLATION, Record};

#[derive(Clone, Debug)]
pub(super) struct LeaseApi {
    pub(super) api: Api<Lease>,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) installation: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
}

pub(super) enum Answer {
    Stored(Record),
    Conflict,
}

impl LeaseApi {
    pub(super) async fn read(&self) -> Result<Option<Record>, kube::Error> {
        Ok(self.api.get_opt(&self.name).await?.as_ref().map(Record::from))
    }

    pub(super) async fn write(&self, write: &Write) -> Result<Answer, kube::Error> {
        let answer = match &write.replaces {
            None => {
                let mut lease = Lease { spec: Some(spec(&write.record)), ..Lease::default() };
                lease.metadata.name = Some(self.name.clone());
                lease.metadata.labels = Some(self.labels.clone());
                lease.metadata.annotations = Some(self.annotations());
                self.api.create(&PostParams::default(), &lease).await
            }
            // A merge keeps owners, labels and other fields of others; the version makes it a compare-and-swap.
            Some(version) => {
                let (labels, annotations) = (&self.labels, self.annotations());
                let metadata = json!({ "resourceVersion": version, "labels": labels, "annotations": annotations });
                let patch = json!({ "metadata": metadata, "spec": spec(&write.record) });
                self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await
            }
        };
        match answer {
            Ok(stored) => Ok(Answer::Stored(Record::from(&stored))),
            // 409: it exists already, or changed. 404 on a patch: it was deleted; on a create, the namespace is
            // missing.
            Err(kube::Error::Api(status)) if status.code == 409 || (status.code == 404 && write.replaces.is_some()) => {
                Ok(Answer::Conflict)
            }
            Err(error) => Err(error),
        }
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        self.installation.clone().map(|name| (INSTALLATION.to_owned(), name)).into_iter().collect()
    }

    pub(super) fn error(&self, action: &'static str, error: kube::Error) -> LeaseError {
        LeaseError::Request { action, what: self.described(), source: Box::new(error) }
    }

    pub(super) fn late(&self, action: &'static str, limit: Duration) -> LeaseError {
        LeaseError::Late { action, what: self.described(), limit }
    }

    fn described(&self) -> String {
        format!("the Lease {}/{}", self.namespace, self.name)
    }
}

fn spec(record: &Record) -> LeaseSpec {
    LeaseSpec {
        // Empty, as client-go releases: a field left out of a merge would stay.
        holder_identity: Some(record.holder.clone().unwrap_or_default()),
        acquire_time: record.acquired.map(MicroTime),
        renew_time: record.renewed.map(MicroTime),
        lease_duration_seconds: record.duration.and_then(|duration| i32::try_from(duration.as_secs()).ok()),
        lease_transitions: i32::try_from(record.transitions).ok(),
        ..LeaseSpec::default()
    }
}
