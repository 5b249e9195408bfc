//! Events about our objects (`events.k8s.io/v1`). The caller decides which events to publish, and publishes each once:
//! it knows what the last status did not say.
//!
//! `kube::runtime::events::Recorder` does not serve here. It takes two events for one when their reasons are the same,
//! whatever they say, and then shows the first note for six minutes (`EventKey` has no note): of an object that is
//! invalid for one reason and then for another, people would read the first. And where a user removed the event that it
//! counts up, it fails. What its counting saves, events that are news save already. A reconcile that wants it makes one
//! of `Runtime::client`, and grants `patch` on events.

use std::time::Duration;

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, Resource, api::PostParams};
use portcullis_client::error_message;

/// The namespace of events about cluster-scoped objects: the API server accepts no other.
const NAMESPACE: &str = "default";
/// Longest name of an object.
const MAX_NAME: usize = 253;
/// The deadline of publishing an event.
const DEADLINE: Duration = Duration::from_secs(10);

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something happened as expected.
    Normal,
    /// Something needs attention.
    Warning,
}

/// An event to publish about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEvent {
    /// Its type.
    pub type_: EventType,
    /// One word in CamelCase.
    pub reason: String,
    /// A sentence, at most 1024 bytes.
    pub note: String,
}

/// Publishes events as one controller.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: String,
}

// === impl PlannedEvent ===

impl PlannedEvent {
    /// Creates an event; a note that is too long is truncated.
    pub fn new(type_: EventType, reason: &str, note: &str) -> Self {
        Self { type_, reason: reason.to_owned(), note: note[..note.floor_char_boundary(1024)].to_owned() }
    }
}

// === impl Events ===

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl Events {
    /// Publishes events as the controller of this name.
    pub fn new(client: Client, controller: impl Into<String>) -> Self {
        Self { client, controller: controller.into() }
    }

    /// Publishes `events` about `object`. A failure is only logged.
    pub async fn publish<K: Resource<DynamicType = ()>>(&self, object: &K, events: &[PlannedEvent]) {
        let regarding = object.object_ref(&());
        let namespace = regarding.namespace.as_deref().unwrap_or(NAMESPACE);
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        for planned in events {
            let event = self.event(&regarding, planned);
            let error = match tokio::time::timeout(DEADLINE, api.create(&PostParams::default(), &event)).await {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => error_message(&error),
                Err(_) => format!("no answer within {} s", DEADLINE.as_secs()),
            };
            let ObjectReference { kind, namespace, name, .. } = &regarding;
            tracing::warn!(kind, namespace, name, reason = planned.reason, error, "cannot publish an event");
        }
    }

    fn event(&self, regarding: &ObjectReference, planned: &PlannedEvent) -> Event {
        let now = jiff::Timestamp::now();
        let (name, suffix) = (regarding.name.as_deref().unwrap_or_default(), format!(".{:x}", now.as_nanosecond()));
        let name = &name[..name.floor_char_boundary(MAX_NAME.saturating_sub(suffix.len()))];
        Event {
            metadata: ObjectMeta {
                namespace: Some(regarding.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned())),
                name: Some(format!("{name}{suffix}")),
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
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.controller.clone()),
            ..Event::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response, StatusCode};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use portcullis_testing::Log;

    use super::*;

    #[tokio::test]
    async fn an_event_that_is_refused_is_logged_with_its_object_and_why() {
        let status =
            r#"{"kind":"Status","status":"Failure","message":"events is forbidden","reason":"Forbidden","code":403}"#;
        let refusing = tower::service_fn(move |_: Request<Body>| async move {
            let mut refusal = Response::new(Body::from(status.as_bytes().to_vec()));
            *refusal.status_mut() = StatusCode::FORBIDDEN;
            Ok::<_, std::convert::Infallible>(refusal)
        });
        let events = Events::new(Client::new(refusing, "default"), "kettles");
        let mut object = ConfigMap::default();
        (object.metadata.namespace, object.metadata.name) = (Some("team".to_owned()), Some("a".to_owned()));
        let (log, _listening) = Log::listen();
        events.publish(&object, &[PlannedEvent::new(EventType::Normal, "Boiled", "it boils")]).await;
        let said = log.take();
        for part in ["WARN", "ConfigMap", "team", "name=\"a\"", "Boiled", "events is forbidden"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
    }
}
