//! Events about our objects (`events.k8s.io/v1`). Which ones are worth saying, and that each is said once, is the
//! plan's matter: it says what the last status did not.

use std::time::Duration;

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, Resource, api::PostParams};

use crate::plan::{EventType, PlannedEvent};

/// An event is not worth waiting for longer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Publishes events in the name of one controller.
#[derive(Clone)]
pub(super) struct Events {
    client: Client,
    controller: &'static str,
}

// === impl Events ===

impl Events {
    pub(super) fn new(client: Client, controller: &'static str) -> Self {
        Self { client, controller }
    }

    /// Publishes `events` about `object`. One that cannot be published is logged: nothing depends on it.
    pub(super) async fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, events: &[PlannedEvent]) {
        let regarding = object.object_ref(&());
        let api: Api<Event> = Api::namespaced(self.client.clone(), regarding.namespace.as_deref().unwrap_or_default());
        for planned in events {
            let event = self.event(&regarding, planned);
            match tokio::time::timeout(DEADLINE, api.create(&PostParams::default(), &event)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(reason = planned.reason, %error, "cannot publish an event"),
                Err(_) => tracing::warn!(reason = planned.reason, "no answer when publishing an event"),
            }
        }
    }

    fn event(&self, regarding: &ObjectReference, planned: &PlannedEvent) -> Event {
        let now = jiff::Timestamp::now();
        let name = regarding.name.as_deref().unwrap_or_default();
        Event {
            metadata: ObjectMeta {
                namespace: regarding.namespace.clone(),
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                ..ObjectMeta::default()
            },
            type_: Some(match planned.type_ {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            reason: Some(planned.reason.clone()),
            note: Some(planned.note.clone()),
            action: Some("Reconcile".to_owned()),
            regarding: Some(regarding.clone()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(self.controller.to_owned()),
            reporting_instance: Some(self.controller.to_owned()),
            ..Event::default()
        }
    }
}
