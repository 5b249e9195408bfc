//! The values of an operator's chart, each at its place in the generated manifests.

use serde_json::Value;

use super::{Document, Slot};

/// Returns the document of a manifest with the slots of its labels and annotations (`.Values.commonLabels`,
/// `.Values.commonAnnotations`) and, for each webhook in it, of the timeout, the failure policy and the selectors
/// (`.Values.webhooks`). A webhook whose failure policy is `Ignore` keeps it.
///
/// With `external_bundle`, the CA bundle of webhooks and conversions is `.Values.certificates.caBundle`. Otherwise the
/// operator or cert-manager publishes it, and the template leaves it alone.
pub fn document(object: Value, external_bundle: bool) -> Document {
    let mut slots = common();
    let bundle = |client_config: &str| {
        let value = ".Values.certificates.caBundle".to_owned();
        let slot = slot(&format!("{client_config}/caBundle"), Slot::Optional(value, "{{ . | b64enc }}".to_owned()));
        external_bundle.then_some(slot)
    };
    for (index, webhook) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
        let at = |member: &str| format!("/webhooks/{index}/{member}");
        slots.extend(bundle(&at("clientConfig")));
        for member in ["failurePolicy", "timeoutSeconds"] {
            // A webhook that fails open may do so because failing closed could lock the cluster.
            if webhook[member] != "Ignore" {
                let text = format!("{{{{ .Values.webhooks.{member} | default {} }}}}", webhook[member]);
                slots.push(slot(&at(member), Slot::Text(text)));
            }
        }
        slots.extend(selectors(webhook, &format!("/webhooks/{index}")));
    }
    if object.pointer("/spec/conversion/webhook/clientConfig").is_some() {
        slots.extend(bundle("/spec/conversion/webhook/clientConfig"));
    }
    Document { object, slots, only_if: None }
}

/// Returns the document of an admission policy or of its binding; the binding has the selectors of `.Values.webhooks`.
pub fn policy_document(object: Value) -> Document {
    let mut slots = common();
    if object["kind"] == "ValidatingAdmissionPolicyBinding" {
        slots.extend(selectors(&object["spec"]["matchResources"], "/spec/matchResources"));
    }
    Document { object, slots, only_if: None }
}

/// What can be filled into every object.
fn common() -> Vec<(String, Slot)> {
    vec![
        slot("/metadata/labels", Slot::Also(".Values.commonLabels".to_owned())),
        slot("/metadata/annotations", Slot::Also(".Values.commonAnnotations".to_owned())),
    ]
}

/// What narrows the selectors of the object at this place.
fn selectors(selecting: &Value, place: &str) -> Vec<(String, Slot)> {
    let mut slots = Vec::new();
    for selector in ["namespaceSelector", "objectSelector"] {
        let value = format!(".Values.webhooks.{selector}");
        if selecting[selector].is_null() {
            slots.push(slot(&format!("{place}/{selector}"), Slot::Value(value)));
            continue;
        }
        for part in ["matchLabels", "matchExpressions"] {
            slots.push(slot(&format!("{place}/{selector}/{part}"), Slot::Also(format!("{value}.{part}"))));
        }
    }
    slots
}

/// The flags by which a process knows the settings of all webhooks, as items of its arguments.
fn override_arguments() -> Vec<Slot> {
    let item = |member: &str, text: &str| Slot::Item(format!(".Values.webhooks.{member}"), text.to_owned());
    vec![
        item("failurePolicy", "--failure-policy={{ . }}"),
        item("timeoutSeconds", "--timeout-seconds={{ . }}"),
        item("namespaceSelector", "{{ printf \"--namespace-selector=%s\" (toJson .) | quote }}"),
        item("objectSelector", "{{ printf \"--object-selector=%s\" (toJson .) | quote }}"),
    ]
}

fn slot(pointer: &str, slot: Slot) -> (String, Slot) {
    (pointer.to_owned(), slot)
}

/// Adds the slots of the Deployment, the PodDisruptionBudget, the NetworkPolicy or the ServiceMonitor of an operator.
/// `own_arguments` is the named template of the chart that makes arguments of the operator's own.
pub fn fill_operator(document: &mut Document, own_arguments: Option<&str>) {
    match document.object["kind"].as_str() {
        Some("PodDisruptionBudget") => document.only_if = Some(value("podDisruptionBudget.enabled")),
        Some("NetworkPolicy") => document.only_if = Some(value("networkPolicy.enabled")),
        Some("ServiceMonitor") => {
            // Merged: a label in both would be twice in the object. The ServiceMonitor's own goes first.
            let labels = "merge (dict) .Values.serviceMonitor.labels .Values.commonLabels";
            document.slots.retain(|(pointer, _)| pointer != "/metadata/labels");
            document.slots.extend([
                slot("/metadata/labels", Slot::Also(labels.to_owned())),
                slot(
                    "/spec/endpoints/0/interval",
                    Slot::Optional(value("serviceMonitor.interval"), "{{ . }}".to_owned()),
                ),
            ]);
        }
        Some("Deployment") => {
            let own_arguments = own_arguments.map(|template| Slot::Include(template.to_owned()));
            let arguments = override_arguments().into_iter().chain(own_arguments);
            let arguments = arguments.chain([Slot::Also(value("extraArgs"))]);
            document.slots.extend(arguments.map(|argument| of_container("args", argument)));
            document.slots.extend([
                slot("/spec/replicas", Slot::Text("{{ .Values.replicas }}".to_owned())),
                of_pod("affinity", Slot::Instead(value("affinity"))),
                of_pod("hostNetwork", Slot::Optional(value("hostNetwork"), "{{ . }}".to_owned())),
                of_pod("dnsPolicy", Slot::Optional(value("hostNetwork"), "ClusterFirstWithHostNet".to_owned())),
            ]);
            document.slots.extend(of_any_pod());
            document.slots.extend([
                of_container("volumeMounts", Slot::Value(value("extraVolumeMounts"))),
                of_pod("topologySpreadConstraints", Slot::Value(value("topologySpreadConstraints"))),
                of_pod("volumes", Slot::Value(value("extraVolumes"))),
            ]);
        }
        _ => {}
    }
}

/// Adds the slots of a Job that is a hook of the chart; `own_arguments` as in [`fill_operator`].
pub fn fill_hook(document: &mut Document, own_arguments: Option<&str>) {
    if document.object["kind"] == "Job" {
        let own_arguments = own_arguments.map(|template| Slot::Include(template.to_owned()));
        document.slots.extend(own_arguments.map(|argument| of_container("args", argument)));
        document.slots.extend(of_any_pod());
    }
}

/// What is filled into every pod.
fn of_any_pod() -> Vec<(String, Slot)> {
    let image = "\"{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag \
                 | default .Chart.AppVersion }}{{ end }}\"";
    vec![
        slot("/spec/template/metadata/annotations", Slot::Also(value("podAnnotations"))),
        slot("/spec/template/metadata/labels", Slot::Also(value("podLabels"))),
        of_container("env", Slot::Also(value("extraEnv"))),
        of_container("image", Slot::Text(image.to_owned())),
        of_container("imagePullPolicy", Slot::Optional(value("image.pullPolicy"), "{{ . }}".to_owned())),
        of_container("resources", Slot::Value(value("resources"))),
        // A chart whose values have none keeps what is generated.
        of_container("securityContext", Slot::Instead(value("securityContext"))),
        of_pod("imagePullSecrets", Slot::Value(value("imagePullSecrets"))),
        of_pod("nodeSelector", Slot::Value(value("nodeSelector"))),
        of_pod("priorityClassName", Slot::Optional(value("priorityClassName"), "{{ . | quote }}".to_owned())),
        of_pod("securityContext", Slot::Instead(value("podSecurityContext"))),
        of_pod("tolerations", Slot::Value(value("tolerations"))),
    ]
}

fn of_pod(member: &str, what: Slot) -> (String, Slot) {
    slot(&format!("/spec/template/spec/{member}"), what)
}

fn of_container(member: &str, what: Slot) -> (String, Slot) {
    slot(&format!("/spec/template/spec/containers/0/{member}"), what)
}

fn value(name: &str) -> String {
    format!(".Values.{name}")
}
