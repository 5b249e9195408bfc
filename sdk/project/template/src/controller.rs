//! The controller: brings the ConfigMap and the status of an object up to date.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use portcullis::controller::{Action, Controller, ControllerError, Reconcile};

use crate::v1;

/// The controller of kettles. Its rights follow from the kinds that it reconciles and owns.
pub fn controller() -> Controller<v1::Kettle> {
    Controller::new("kettle-operator").owns::<ConfigMap>()
}

/// Brings the ConfigMap and the status up to date.
///
/// # Errors
/// When the API server refuses a write. The object is then reconciled again.
pub async fn reconcile(cx: Reconcile<v1::Kettle>) -> Result<Action, ControllerError> {
    cx.apply(&config_map(&cx.object)).await?;
    let previous = cx
        .object
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions = cx.conditions(previous);
    conditions.set("Ready", true, "Written", "the ConfigMap is written");
    cx.apply_status(&v1::Status {
        conditions: conditions.into_list(),
    })
    .await?;
    Ok(Action::await_change())
}

/// The child. Its owner, and with it its end, are the SDK's business.
fn config_map(object: &v1::Kettle) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(object.name_any());
    map.data = Some(BTreeMap::from([(
        "message".to_owned(),
        object.spec.message.clone(),
    )]));
    map
}
