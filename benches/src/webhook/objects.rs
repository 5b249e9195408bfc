//! Entities as they lie in a store: labels, annotations, managed fields, status, and as much spec as makes the size. The same
//! for the same seed.

use serde_json::{Map, Value, json};

const WORDS: [&str; 16] = [
    "amber", "birch", "cedar", "delta", "ember", "flint", "grove", "haven", "inlet", "jetty", "knoll", "larch",
    "maple", "north", "ocean", "plain",
];
const STAMP: &str = "2026-11-20T10:11:12Z";

/// A small generator of the same words for the same seed (Knuth's MMIX constants).
struct Words(u64);

impl Words {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn word(&mut self) -> &'static str {
        usize::try_from(self.below(16)).ok().and_then(|index| WORDS.get(index)).unwrap_or(&WORDS[0])
    }

    fn words(&mut self, number: usize, between: &str) -> String {
        (0..number).map(|_| self.word()).collect::<Vec<_>>().join(between)
    }

    fn list(&mut self, number: usize) -> Vec<&'static str> {
        (0..number).map(|_| self.word()).collect()
    }
}

/// The purpose of an Entity.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// `v1`, `v2` or `v3`.
    pub version: &'a str,
    /// The JSON is as near to this many bytes as it comes without exceeding it.
    pub bytes: usize,
    /// Says which of many it is.
    pub seed: u64,
    /// `spec.username`.
    pub username: &'a str,
    /// Whether it has been stored, and so has an uid, a version and a time.
    pub stored: bool,
}

/// The Entity that is wanted.
pub fn entity(wanted: Wanted<'_>) -> Value {
    let sizes = (0..80).map(|scale| build(wanted, scale));
    let fitting = sizes.take_while(|object| object.to_string().len() <= wanted.bytes);
    fitting.last().unwrap_or_else(|| build(wanted, 0))
}

fn build(wanted: Wanted<'_>, scale: usize) -> Value {
    let mut words = Words(wanted.seed.wrapping_add(1));
    let name = format!("entity-{:05}", wanted.seed);
    let mut spec = spec(&mut words, scale, wanted.username);
    let (first, last) = (words.word(), words.word());
    let email = format!("{first}.{last}@example.com");
    let own = match wanted.version {
        "v1" => json!({ "name": format!("{first} {last}"), "contactEmail": email }),
        "v2" => json!({ "firstname": first, "lastname": last, "contactEmail": email }),
        _ => json!({ "firstname": first, "lastname": last, "contact": { "email": email } }),
    };
    extend(&mut spec, own);
    let labels = json!({ "app.kubernetes.io/name": "entity", "app.kubernetes.io/instance": words.word(),
        "app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "entity-1.2.3" });
    let annotations = json!({ "meta.helm.sh/release-name": words.word(), "meta.helm.sh/release-namespace": "default" });
    let conditions: Vec<Value> = ["Ready", "Available", "Progressing"]
        .iter()
        .take(1 + scale)
        .map(|condition| {
            json!({ "type": condition, "status": "True", "reason": "Reconciled", "message": words.words(6, " "),
                "observedGeneration": 1, "lastTransitionTime": STAMP })
        })
        .collect();
    let api_version = format!("entity.example.com/{}", wanted.version);
    let managed = json!([
        { "apiVersion": api_version, "fieldsType": "FieldsV1", "manager": "helm", "operation": "Update", "time": STAMP,
          "fieldsV1": { "f:metadata": { "f:labels": owned(&labels), "f:annotations": owned(&annotations) },
                        "f:spec": owned(&spec) } },
        { "apiVersion": api_version, "fieldsType": "FieldsV1", "manager": "entity-operator", "operation": "Update",
          "subresource": "status", "time": STAMP,
          "fieldsV1": { "f:status": { ".": {}, "f:phase": {}, "f:observedGeneration": {}, "f:conditions": { ".": {},
              "k:{\"type\":\"Ready\"}": { ".": {}, "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {} } } } } },
    ]);
    let mut metadata = json!({ "name": name, "namespace": "default", "labels": labels, "annotations": annotations,
        "managedFields": managed });
    if wanted.stored {
        let uid = format!("{:08x}-4c1e-4b8e-9d5f-0c6f6a1d{:04x}", words.below(1 << 31), words.below(1 << 16));
        let version = (100_000 + wanted.seed).to_string();
        extend(
            &mut metadata,
            json!({ "uid": uid, "creationTimestamp": STAMP, "generation": 1, "resourceVersion": version }),
        );
    }
    json!({ "apiVersion": api_version, "kind": "Entity", "metadata": metadata, "spec": spec,
        "status": { "phase": "Ready", "observedGeneration": 1, "conditions": conditions } })
}

fn spec(words: &mut Words, scale: usize, username: &str) -> Value {
    let parameters: Map<String, Value> =
        (0..4 + 2 * scale).map(|i| (format!("{}.{i}", words.words(2, ".")), words.words(2, "-").into())).collect();
    let env: Vec<Value> = (0..3 + 3 * scale)
        .map(|i| json!({ "name": format!("{}_{i}", words.words(2, "_").to_uppercase()), "value": words.words(3, " ") }))
        .collect();
    let endpoints: Vec<Value> = (0..2 + scale)
        .map(|i| {
            json!({ "name": format!("endpoint-{i}"), "host": format!("{}.svc.cluster.local", words.words(2, "-")),
                "port": 1024 + words.below(60_000), "protocol": "TCP", "weight": 1 + words.below(99) })
        })
        .collect();
    let rules: Vec<Value> = (0..2 + scale)
        .map(|i| {
            json!({ "name": format!("rule-{i}"), "resources": words.list(2), "verbs": ["get", "list", "watch"],
                "priority": i + 1, "enabled": i % 2 == 1 })
        })
        .collect();
    let tags: Vec<String> = (0..4).map(|_| words.words(2, ":")).collect();
    let cidrs: Vec<String> = (0..3).map(|_| format!("10.{}.{}.0/24", words.below(256), words.below(256))).collect();
    let weights: Vec<u64> = (0..6).map(|_| words.below(100)).collect();
    let mut spec = json!({
        "username": username, "description": words.words(8 + 6 * scale, " "), "team": words.words(2, "-"),
        "project": words.words(2, "-"), "environment": "staging", "region": "eu-central-1", "zone": "eu-central-1b",
        "costCenter": format!("CC-{:05}", words.below(100_000)), "version": "1.12.3", "logLevel": "info",
        "image": format!("registry.example.com/{}:v1.12.3", words.words(2, "/")), "schedule": "*/15 * * * *",
        "timezone": "Europe/Berlin", "storageClass": "fast-ssd", "serviceAccountName": words.words(2, "-"),
        "priorityClassName": "high-priority", "clusterDomain": "cluster.local", "replicas": 1 + words.below(8),
        "minReplicas": 1, "maxReplicas": 12, "port": 1024 + words.below(60_000), "timeoutSeconds": 30, "retries": 3,
        "retentionDays": 14, "quotaMiB": 1 + words.below(1 << 20), "paused": false,
    });
    extend(
        &mut spec,
        json!({
            "roles": words.list(3), "groups": words.list(3), "tags": tags, "allowedCIDRs": cidrs, "weights": weights,
            "nodeSelector": { "kubernetes.io/os": "linux", "node.example.com/pool": words.word() },
            "parameters": parameters, "env": env, "endpoints": endpoints, "rules": rules,
        }),
    );
    spec
}

fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// The members of a value as server-side apply notes who owns them.
fn owned(value: &Value) -> Value {
    let mut fields = Map::from_iter([(".".to_owned(), json!({}))]);
    for (key, value) in value.as_object().into_iter().flatten() {
        fields.insert(format!("f:{key}"), if value.is_object() { owned(value) } else { json!({}) });
    }
    Value::Object(fields)
}
