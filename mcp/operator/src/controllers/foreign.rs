//! The parts of a proxy's Deployment and of Services that nobody but the operator may hold: the gate rests on them.

use mcp_plan::guards::{CONTAINER, OWN_FIELDS, POD_FIELDS, is_own_variable};
use mcp_runconfig::paths::{hides_account, hides_proxy};
use serde_json::{Map, Value, json};

/// The fields by which a Service leads elsewhere than its selector says, or to pods that are not ready, of which no status tells.
const ELSEWHERE: [&str; 3] = ["externalName", "externalIPs", "publishNotReadyAddresses"];
/// A field of pods that newer versions of Kubernetes have than the types here.
const HOSTNAME_OVERRIDE: &str = "hostnameOverride";

/// The patch that takes such fields of an object of this kind from a manager that holds `theirs`, as far as they are not
/// `ours`. Which values they have does not matter.
pub(super) fn exclusive(kind: &str, theirs: &Value, ours: &Value) -> Option<Value> {
    let (theirs, ours) = (&theirs["f:spec"], &ours["f:spec"]);
    let spec = match kind {
        "Deployment" => deployment(theirs, ours),
        "Service" => service(theirs, ours),
        _ => Map::new(),
    };
    (!spec.is_empty()).then(|| json!({"spec": spec}))
}

fn deployment(theirs: &Value, ours: &Value) -> Map<String, Value> {
    let [theirs, ours] = [theirs, ours].map(|spec| &spec["f:template"]["f:spec"]);
    let mut pod = fields(theirs, ours, &POD_FIELDS);
    pod.extend(fields(theirs, ours, &[HOSTNAME_OVERRIDE]));
    pod.extend(some("volumes", elements(theirs, ours, "volumes", "name", |_| false)));

    let key = format!("k:{}", json!({"name": CONTAINER}));
    let [theirs, ours] = [theirs, ours].map(|pod| &pod["f:containers"][&*key]);
    let mut container = fields(theirs, ours, &OWN_FIELDS);
    let hides = |path: &str| hides_proxy(path) || hides_account(path);
    container.extend(some("env", elements(theirs, ours, "env", "name", is_own_variable)));
    container.extend(some("volumeMounts", elements(theirs, ours, "volumeMounts", "mountPath", hides)));
    if !container.is_empty() {
        container.insert("name".to_owned(), json!(CONTAINER));
        pod.insert("containers".to_owned(), json!([container]));
    }
    let pod = (!pod.is_empty()).then(|| ("template".to_owned(), json!({"spec": pod})));
    pod.into_iter().collect()
}

fn service(theirs: &Value, ours: &Value) -> Map<String, Value> {
    let mut spec = fields(theirs, ours, &ELSEWHERE);
    if spec.contains_key(ELSEWHERE[0]) && ours.get("f:type").is_none() {
        // Only a Service of this type has such a name. The API server fills in the default.
        spec.insert("type".to_owned(), Value::Null);
    }
    spec
}

/// Takes away those of the `fields` that they hold and we do not.
fn fields(theirs: &Value, ours: &Value, fields: &[&str]) -> Map<String, Value> {
    let is_foreign = |field: &&&str| {
        let field = format!("f:{field}");
        theirs.get(&field).is_some() && ours.get(&field).is_none()
    };
    fields.iter().filter(is_foreign).map(|field| ((*field).to_owned(), Value::Null)).collect()
}

/// Takes away what they hold of the elements of a list that are ours: because we hold them, or since they would be (`is_own`).
fn elements(theirs: &Value, ours: &Value, list: &str, key: &str, is_own: fn(&str) -> bool) -> Vec<Value> {
    let list = format!("f:{list}");
    let held = theirs[&*list].as_object().into_iter().flatten().filter_map(|(element, theirs)| {
        let keys: Value = serde_json::from_str(element.strip_prefix("k:")?).ok()?;
        let name = keys[key].as_str()?;
        match ours[&*list].get(element) {
            Some(ours) => {
                let mut patch = beyond(theirs, ours)?;
                patch.insert(key.to_owned(), json!(name));
                Some(Value::Object(patch))
            }
            None => is_own(name).then(|| json!({key: name, "$patch": "delete"})),
        }
    });
    held.collect()
}

/// Takes away what they hold below something that we hold, and we do not hold. The mode of files is filled in again as it was.
fn beyond(theirs: &Value, ours: &Value) -> Option<Map<String, Value>> {
    let taken = theirs.as_object()?.iter().filter(|(key, _)| *key != "f:defaultMode").filter_map(|(key, theirs)| {
        let patch = match ours.get(key) {
            Some(ours) => Value::Object(beyond(theirs, ours)?),
            None => Value::Null,
        };
        Some((key.strip_prefix("f:")?.to_owned(), patch))
    });
    let taken: Map<String, Value> = taken.collect();
    (!taken.is_empty()).then_some(taken)
}

fn some(list: &str, elements: Vec<Value>) -> Option<(String, Value)> {
    (!elements.is_empty()).then(|| (list.to_owned(), Value::Array(elements)))
}
