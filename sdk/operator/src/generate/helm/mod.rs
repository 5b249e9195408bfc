//! Templates of a Helm chart, from the registration: the manifests in every mode that values of the chart choose.

mod names;

use portcullis_manifest::helm::{Document, Mode, document, fill_hook, fill_operator, policy_document, template};
use serde_json::{Value, json};

use super::objects::Objects;
use super::{GenerateError, GenerateFlags, What};
use crate::Operator;
use names::{Chart, REVISION, VALIDITY};

/// The annotation by which Helm leaves an object alone when its release is uninstalled.
const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// The templates of an operator, or of its kinds: names without an extension, and contents.
pub(super) struct Templates<'a, A: clap::Args> {
    pub(super) operator: &'a Operator<A>,
    pub(super) args: &'a A,
    pub(super) flags: &'a GenerateFlags,
    /// The operator's own arguments, as words.
    pub(super) own: Vec<String>,
}

impl<A: clap::Args> Templates<'_, A> {
    /// All of them.
    pub(super) fn all(&self, what: What) -> anyhow::Result<Vec<(String, What, String)>> {
        let own_values = self.operator.helm_values;
        let chart = Chart { what, own_values: own_values.is_some() };
        let modes = chart.modes()?;
        let mut files: Vec<(String, What, Vec<Vec<Document>>)> = Vec::new();
        for (number, mode) in modes.all().iter().enumerate() {
            let flags = chart.flags(mode, self.flags);
            // What controllers there are, and what rights they need, may follow from the mode.
            let context = flags.installation.setup_context(self.operator.name, flags.namespace.as_deref());
            let components = self.operator.components(self.args, &context)?;
            let objects = Objects::new(self.operator, &components, &flags, self.own.clone())?;
            for (name, part, documents) in self.documents(chart, mode, &objects)? {
                let at = files.iter().position(|(known, ..)| *known == name).unwrap_or_else(|| {
                    files.push((name, part, vec![Vec::new(); modes.all().len()]));
                    files.len() - 1
                });
                files[at].2[number] = documents;
            }
        }
        let names = chart.names();
        let begin = own_values.map(|values| format!("{{{{- include {values:?} . }}}}\n")).unwrap_or_default();
        let written = files.into_iter().filter(|(.., documents)| documents.iter().any(|mode| !mode.is_empty()));
        let text =
            |documents: &[Vec<Document>]| template(&modes, documents, &names).map(|text| format!("{begin}{text}"));
        written.map(|(name, part, documents)| Ok((name, part, text(&documents)?))).collect()
    }

    /// The documents of each file in a mode.
    fn documents(
        &self,
        chart: Chart,
        mode: &Mode,
        objects: &Objects<'_>,
    ) -> Result<Vec<(String, What, Vec<Document>)>, GenerateError> {
        let given = Chart::gives_bundle(mode);
        let document = |object| document(object, given);
        if chart.what == What::Crds {
            let crd = |(name, mut crd): (String, Value)| {
                if Chart::keeps(mode) {
                    let annotations = &mut crd["metadata"]["annotations"];
                    annotations[RESOURCE_POLICY] = json!("keep");
                }
                let only_if = chart.own_values.then(|| ".Values.crds.enabled".to_owned());
                (name, What::Crds, vec![Document { only_if, ..document(crd) }])
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
        let mut hooks = of(objects.hooks(VALIDITY, REVISION));
        for document in &mut hooks {
            fill_hook(document, includes_own.as_deref());
        }
        let mut files = vec![
            ("rbac".to_owned(), What::Rbac, of(objects.rbac())),
            ("certificates".to_owned(), What::Certificates, of(objects.certificates())),
            ("hooks".to_owned(), What::Operator, hooks),
            ("operator".to_owned(), What::Operator, operator),
            ("webhooks".to_owned(), What::Webhooks, of(objects.webhooks()?)),
            ("policies".to_owned(), What::Policies, objects.policies()?.into_iter().map(policy_document).collect()),
        ];
        files.retain(|(_, part, _)| chart.what == What::Operator || chart.what == *part);
        Ok(files)
    }
}

/// Whether the operator has arguments of its own that people should know of.
fn has_own_arguments<A: clap::Args>() -> bool {
    A::augment_args(clap::Command::new("own")).get_arguments().any(|argument| !argument.is_hide_set())
}
