//! Templates of a Helm chart, from the registration: the manifests in every mode that values of the chart choose.

use portcullis_manifest::IssuerRef;
use portcullis_manifest::helm::{Axis, Choice, Document, Mode, Modes, Names, Slot, template};
use serde_json::{Value, json};

use super::objects::Objects;
use super::{GenerateError, GenerateFlags, What};
use crate::installation::InstallationFlags;
use crate::{Components, Operator, Switch};
use portcullis_manifest::CertificateMode;

/// Words in generated manifests that stand for names of an installation: names that Kubernetes would take, none of which is
/// part of another, and without a dash, after which a release's name could be taken to go on with a controller's.
const RELEASE: &str = "thehelmrelease";
const NAMESPACE: &str = "thehelmnamespace";
const RESTRICTED_TO: &str = "thechartnamespace";
const ISSUER_KIND: &str = "thechartkindofissuer";
const ISSUER: &str = "thechartissuername";
const CLUSTER_DOMAIN: &str = "thechartdomain";

/// Places of axes in a mode: those of both charts, those of the operator's, and that of its kinds'.
const WEBHOOKS: usize = 0;
const CERTIFICATES: usize = 1;
const ISSUED: usize = 2;
const ACCOUNTS: usize = 3;
const SCOPE: usize = 4;
const KEPT: usize = 2;

/// The annotation by which Helm leaves an object alone when its release is uninstalled.
const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// The templates of an operator, or of its kinds: names without an extension, and contents.
pub(super) struct Templates<'a, A: clap::Args> {
    pub(super) operator: &'a Operator<A>,
    pub(super) components: &'a Components,
    pub(super) flags: &'a GenerateFlags,
    /// The operator's own arguments, as given.
    pub(super) own: Vec<String>,
}

impl<A: clap::Args> Templates<'_, A> {
    /// The flags that say what a mode is.
    fn flags(&self, what: What, mode: &Mode) -> GenerateFlags {
        let chosen = |axis: usize| mode.get(axis).copied().unwrap_or_default();
        // Kinds are the cluster-wide operator's, and it does not matter to them who issues.
        let of_operator = |axis: usize| if what == What::Crds { None } else { Some(chosen(axis)) };
        let modes = [CertificateMode::Automatic, CertificateMode::CertManager, CertificateMode::External];
        let certificates = modes[chosen(CERTIFICATES)];
        let issued = of_operator(ISSUED) == Some(0) && certificates == CertificateMode::CertManager;
        let restrict_to = [None, Some(NAMESPACE), Some(RESTRICTED_TO)][of_operator(SCOPE).unwrap_or_default()];
        GenerateFlags {
            namespace: Some(NAMESPACE.to_owned()),
            installation: InstallationFlags {
                release: Some(RELEASE.to_owned()),
                restrict_to_namespace: restrict_to.map(str::to_owned),
                cluster_domain: CLUSTER_DOMAIN.to_owned(),
                certificates,
                webhooks: if chosen(WEBHOOKS) == 0 { Switch::On } else { Switch::Off },
                use_service_account_credentials: of_operator(ACCOUNTS) != Some(1),
                ..InstallationFlags::default()
            },
            issuer: issued.then(|| IssuerRef { kind: ISSUER_KIND.to_owned(), name: ISSUER.to_owned() }),
            ..self.flags.clone()
        }
    }

    /// All of them.
    pub(super) fn all(&self, what: What) -> Result<Vec<(String, What, String)>, GenerateError> {
        let modes = modes(what)?;
        let mut files: Vec<(String, What, Vec<Vec<Document>>)> = Vec::new();
        for (number, mode) in modes.all().iter().enumerate() {
            let flags = self.flags(what, mode);
            let objects = Objects::new(self.operator, self.components, &flags, self.own.clone())?;
            for (name, part, documents) in self.documents(what, mode, &objects)? {
                let at = files.iter().position(|(known, ..)| *known == name).unwrap_or_else(|| {
                    files.push((name, part, vec![Vec::new(); modes.all().len()]));
                    files.len() - 1
                });
                files[at].2[number] = documents;
            }
        }
        let names = names(what);
        let written = files.into_iter().filter(|(.., documents)| documents.iter().any(|mode| !mode.is_empty()));
        written.map(|(name, part, documents)| Ok((name, part, template(&modes, &documents, &names)?))).collect()
    }

    /// The documents of each file in a mode.
    fn documents(
        &self,
        what: What,
        mode: &Mode,
        objects: &Objects<'_>,
    ) -> Result<Vec<(String, What, Vec<Document>)>, GenerateError> {
        let given = mode.get(CERTIFICATES) == Some(&2);
        let document = |object| document(object, given);
        if what == What::Crds {
            let kept = mode.get(KEPT) == Some(&0);
            let crd = |(name, mut crd): (String, Value)| {
                if kept {
                    let annotations = &mut crd["metadata"]["annotations"];
                    annotations[RESOURCE_POLICY] = json!("keep");
                }
                (name, What::Crds, vec![document(crd)])
            };
            return Ok(objects.crds()?.into_iter().map(crd).collect());
        }
        let of = |objects: Vec<Value>| objects.into_iter().map(document).collect::<Vec<_>>();
        let includes_own = has_own_arguments::<A>().then(|| format!("{}.args", self.operator.name));
        let mut operator = of(objects.operator());
        operator.extend(
            objects.monitoring().into_iter().map(|object| Document {
                only_if: Some(".Values.serviceMonitor.enabled".to_owned()),
                ..document(object)
            }),
        );
        for document in &mut operator {
            fill_operator(document, includes_own.as_deref());
        }
        let mut files = vec![
            ("rbac".to_owned(), What::Rbac, of(objects.rbac())),
            ("certificates".to_owned(), What::Certificates, of(objects.certificates())),
            ("operator".to_owned(), What::Operator, operator),
            ("webhooks".to_owned(), What::Webhooks, of(objects.webhooks()?)),
            ("policies".to_owned(), What::Policies, objects.policies()?.into_iter().map(policy_document).collect()),
        ];
        files.retain(|(_, part, _)| what == What::Operator || what == *part);
        Ok(files)
    }
}

/// What the chart chooses among: for kinds, how their webhooks are called and whether kinds stay; for an operator, all
/// that an installation may be.
fn modes(what: What) -> Result<Modes, GenerateError> {
    let (certificates, restriction) = (".Values.certificates", ".Values.restrictToNamespace");
    let choice = |chosen: String, not_chosen: String| Choice { chosen, not_chosen };
    // In the order of their places.
    let mut axes = vec![
        Axis::switch(".Values.webhooks.enabled"),
        Axis::word(&format!("{certificates}.mode"), &CertificateMode::ALL.map(CertificateMode::as_str)),
    ];
    if what == What::Crds {
        axes.push(Axis::switch(".Values.keep"));
    } else {
        axes.push(Axis::switch(&format!("{certificates}.issuer.name")));
        axes.push(Axis::switch(".Values.useServiceAccountCredentials"));
        let same = format!("{restriction} .Release.Namespace");
        axes.push(Axis(vec![
            choice(format!("not {restriction}"), restriction.to_owned()),
            choice(format!("eq {same}"), format!("ne {same}")),
            choice(format!("and {restriction} (ne {same})"), format!("or (not {restriction}) (eq {same})")),
        ]));
    }
    Modes::of(axes).map_err(GenerateError::Modes)
}

/// What takes the place of the words.
fn names(what: What) -> Names {
    let (release, namespace) = match what {
        // Kinds are a release of their own: they say who serves them.
        What::Crds => (".Values.operator.release", ".Values.operator.namespace"),
        _ => (".Release.Name", ".Release.Namespace"),
    };
    let names = [
        (RELEASE, release),
        (NAMESPACE, namespace),
        (RESTRICTED_TO, ".Values.restrictToNamespace"),
        (ISSUER_KIND, ".Values.certificates.issuer.kind"),
        (ISSUER, ".Values.certificates.issuer.name"),
        (CLUSTER_DOMAIN, ".Values.clusterDomain"),
    ];
    Names(names.map(|(word, expression)| (word.to_owned(), expression.to_owned())).to_vec())
}

/// Whether the operator has arguments of its own that people should know of.
fn has_own_arguments<A: clap::Args>() -> bool {
    A::augment_args(clap::Command::new("own")).get_arguments().any(|argument| !argument.is_hide_set())
}

/// A document with what can be filled into every object, and into those that the API server calls somebody by. The bundle of
/// those is `given` with an external certificate; another one's belongs to who publishes it.
fn document(object: Value, given: bool) -> Document {
    let mut slots = common();
    let bundle = |client_config: &str| {
        let value = ".Values.certificates.caBundle".to_owned();
        let slot = slot(&format!("{client_config}/caBundle"), Slot::Optional(value, "{{ . | b64enc }}".to_owned()));
        given.then_some(slot)
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

/// A policy or its binding, which has the selectors.
fn policy_document(object: Value) -> Document {
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

/// What is filled into the Deployment and what belongs to it.
fn fill_operator(document: &mut Document, own_arguments: Option<&str>) {
    let value = |name: &str| format!(".Values.{name}");
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
            let (pod, container) = ("/spec/template/spec", "/spec/template/spec/containers/0");
            let image = "\"{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag \
                         | default .Chart.AppVersion }}{{ end }}\"";
            let of_pod = |member: &str, what: Slot| slot(&format!("{pod}/{member}"), what);
            let of_container = |member: &str, what: Slot| slot(&format!("{container}/{member}"), what);
            let own_arguments = own_arguments.map(|template| Slot::Include(template.to_owned()));
            let arguments = override_arguments().into_iter().chain(own_arguments);
            document.slots.extend(arguments.map(|argument| of_container("args", argument)));
            document.slots.extend([
                slot("/spec/replicas", Slot::Text("{{ .Values.replicas }}".to_owned())),
                slot("/spec/template/metadata/annotations", Slot::Also(value("podAnnotations"))),
                slot("/spec/template/metadata/labels", Slot::Also(value("podLabels"))),
                of_container("args", Slot::Also(value("extraArgs"))),
                of_container("env", Slot::Also(value("extraEnv"))),
                of_container("image", Slot::Text(image.to_owned())),
                of_container("imagePullPolicy", Slot::Optional(value("image.pullPolicy"), "{{ . }}".to_owned())),
                of_container("resources", Slot::Value(value("resources"))),
                // A chart whose values have none keeps what is generated.
                of_container("securityContext", Slot::Instead(value("securityContext"))),
                of_container("volumeMounts", Slot::Value(value("extraVolumeMounts"))),
                of_pod("affinity", Slot::Instead(value("affinity"))),
                of_pod("hostNetwork", Slot::Optional(value("hostNetwork"), "{{ . }}".to_owned())),
                of_pod("dnsPolicy", Slot::Optional(value("hostNetwork"), "ClusterFirstWithHostNet".to_owned())),
                of_pod("imagePullSecrets", Slot::Value(value("imagePullSecrets"))),
                of_pod("nodeSelector", Slot::Value(value("nodeSelector"))),
                of_pod("priorityClassName", Slot::Optional(value("priorityClassName"), "{{ . | quote }}".to_owned())),
                of_pod("securityContext", Slot::Instead(value("podSecurityContext"))),
                of_pod("tolerations", Slot::Value(value("tolerations"))),
                of_pod("topologySpreadConstraints", Slot::Value(value("topologySpreadConstraints"))),
                of_pod("volumes", Slot::Value(value("extraVolumes"))),
            ]);
        }
        _ => {}
    }
}
