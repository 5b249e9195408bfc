//! Asks a real API server what it makes of an object.

use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use portcullis_testing::ControlPlane;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::contract::{document::Contract, examples};

/// A namespace of an API server that has our CRDs, and what a test asks there.
pub(crate) struct Judge {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

/// The name of the object that is stored; the examples, which are not, have another.
const STORED: &str = "stored";

/// What the API server said: the object as it would store it, or each complaint as `FIELD: MESSAGE`.
pub(crate) type Verdict = Result<Value, Vec<String>>;

impl Judge {
    pub(crate) async fn in_namespace(prefix: &str) -> Self {
        static INSTALLED: OnceCell<()> = OnceCell::const_new();
        let control_plane = ControlPlane::shared().await;
        INSTALLED.get_or_init(async || control_plane.install_crds(&mcp_api::crds()).await).await;
        Self { client: control_plane.admin(), namespace: control_plane.namespace(prefix).await }
    }

    /// The objects of `kind`, in its stored version.
    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let contract = Contract::of(kind);
        let version = contract.stored();
        let resource = ApiResource {
            group: "toolhive.stacklok.dev".into(),
            version: version.into(),
            api_version: format!("toolhive.stacklok.dev/{version}"),
            kind: kind.into(),
            plural: contract.plural().into(),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Would this object be admitted? Nothing is stored.
    pub(crate) async fn create(&self, kind: &str, object: &Value) -> Verdict {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let params = PostParams { dry_run: true, ..PostParams::default() };
        verdict(self.api(kind).create(&params, &object).await)
    }

    /// Would this status be admitted on the object that [`Self::store_example`] has stored? Nothing is stored.
    pub(crate) async fn write_status(&self, kind: &str, status: &Value) -> Verdict {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"status": status}));
        verdict(self.api(kind).patch_status(STORED, &params, &patch).await)
    }

    /// Stores the first example of `kind`, for [`Self::write_status`].
    pub(crate) async fn store_example(&self, kind: &str) {
        let mut example: DynamicObject = serde_json::from_value(examples::of(kind).remove(0)).unwrap();
        example.metadata.name = Some(STORED.into());
        self.api(kind).create(&PostParams::default(), &example).await.unwrap();
    }

    /// Asks about the part of `object` that `path` of the contract lies in: its status, or all the rest.
    pub(crate) async fn judge(&self, kind: &str, path: &str, object: &Value) -> Verdict {
        if path.starts_with(".status") {
            self.write_status(kind, &object["status"]).await
        } else {
            self.create(kind, object).await
        }
    }
}

fn verdict(answer: Result<DynamicObject, kube::Error>) -> Verdict {
    match answer {
        Ok(object) => Ok(serde_json::to_value(object).unwrap()),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            // Said whenever the schema already refuses; the CEL rules then wait.
            let causes = causes.filter(|cause| !cause.message.contains("some validation rules were not checked"));
            let complaints: Vec<_> = causes.map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
            Err(if complaints.is_empty() { vec![status.message.clone()] } else { complaints })
        }
        Err(other) => panic!("no verdict: {other}"),
    }
}
