//! What a chart chooses among, and the words in generated manifests that stand for what is only known when it is installed.

use portcullis_manifest::helm::{Axis, Choice, Mode, Modes, Names};
use portcullis_manifest::{CertificateMode, IssuerRef};

use crate::Switch;
use crate::generate::{GenerateError, GenerateFlags, What};
use crate::installation::InstallationFlags;

/// Words in generated manifests that stand for names of an installation: names that Kubernetes would take, none of which is
/// part of another, and without a dash, after which a release's name could be taken to go on with a controller's.
const RELEASE: &str = "thehelmrelease";
const NAMESPACE: &str = "thehelmnamespace";
const RESTRICTED_TO: &str = "thechartnamespace";
const SERVICE: &str = "thechartservice";
const SECRET: &str = "thechartsecret";
const ISSUER_KIND: &str = "thechartkindofissuer";
const ISSUER: &str = "thechartissuername";
const CLUSTER_DOMAIN: &str = "thechartdomain";
/// Words for what hooks are told.
pub(super) const REVISION: &str = "thehelmrevision";
pub(super) const VALIDITY: &str = "thechartvalidity";

/// Places of axes in a mode: those of both charts, those of the operator's, and that of its kinds'.
const WEBHOOKS: usize = 0;
const CERTIFICATES: usize = 1;
const ISSUED: usize = 2;
const SCOPE: usize = 3;
const KEPT: usize = 2;

/// Which chart the templates are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chart {
    /// What is generated.
    pub(super) what: What,
    /// Whether it has value names of its own, from which a template of its author makes those that are read here.
    pub(super) own_values: bool,
}

impl Chart {
    /// The flags that say what a mode is, beside those that were given.
    pub(super) fn flags(self, mode: &Mode, given: &GenerateFlags) -> GenerateFlags {
        let chosen = |axis: usize| mode.get(axis).copied().unwrap_or_default();
        // Kinds are the cluster-wide operator's, and it does not matter to them who issues.
        let of_operator = |axis: usize| if self.what == What::Crds { None } else { Some(chosen(axis)) };
        let certificates = CertificateMode::ALL[chosen(CERTIFICATES)];
        let issued = of_operator(ISSUED) == Some(0) && certificates == CertificateMode::CertManager;
        let restrict_to = [None, Some(NAMESPACE), Some(RESTRICTED_TO)][of_operator(SCOPE).unwrap_or_default()];
        let own_name = |word: &str| self.own_values.then(|| word.to_owned());
        GenerateFlags {
            namespace: Some(NAMESPACE.to_owned()),
            installation: InstallationFlags {
                release: Some(RELEASE.to_owned()),
                restrict_to_namespace: restrict_to.map(str::to_owned),
                service_name: own_name(SERVICE),
                cluster_domain: CLUSTER_DOMAIN.to_owned(),
                certificates,
                certificate_secret: own_name(SECRET),
                webhooks: if chosen(WEBHOOKS) == 0 { Switch::On } else { Switch::Off },
                ..InstallationFlags::default()
            },
            issuer: issued.then(|| IssuerRef { kind: ISSUER_KIND.to_owned(), name: ISSUER.to_owned() }),
            ..given.clone()
        }
    }

    /// What it chooses among: for kinds, how their webhooks are called and whether kinds stay; for an operator, all that an
    /// installation may be.
    pub(super) fn modes(self) -> Result<Modes, GenerateError> {
        let (certificates, restriction) = (".Values.certificates", ".Values.restrictToNamespace");
        let choice = |chosen: String, not_chosen: String| Choice { chosen, not_chosen };
        let words = CertificateMode::ALL.map(CertificateMode::as_str);
        // Only a chart with values of its own has hooks, which are the last.
        let words = if self.own_values { &words[..] } else { &words[..3] };
        // In the order of their places.
        let mut axes =
            vec![Axis::switch(".Values.webhooks.enabled"), Axis::word(&format!("{certificates}.mode"), words)];
        if self.what == What::Crds {
            axes.push(Axis::switch(if self.own_values { ".Values.crds.keep" } else { ".Values.keep" }));
        } else {
            axes.push(Axis::switch(&format!("{certificates}.issuer.name")));
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
    pub(super) fn names(self) -> Names {
        let (release, namespace) = match (self.own_values, self.what) {
            (true, _) => (".Values.names.release", ".Release.Namespace"),
            // Kinds are a release of their own: they say who serves them.
            (false, What::Crds) => (".Values.operator.release", ".Values.operator.namespace"),
            (false, _) => (".Release.Name", ".Release.Namespace"),
        };
        let names = [
            (RELEASE, release),
            (NAMESPACE, namespace),
            (RESTRICTED_TO, ".Values.restrictToNamespace"),
            (SERVICE, ".Values.names.service"),
            (SECRET, ".Values.names.secret"),
            (ISSUER_KIND, ".Values.certificates.issuer.kind"),
            (ISSUER, ".Values.certificates.issuer.name"),
            (CLUSTER_DOMAIN, ".Values.clusterDomain"),
            (REVISION, ".Release.Revision"),
            (VALIDITY, ".Values.certificates.validity"),
        ];
        Names(names.map(|(word, expression)| (word.to_owned(), expression.to_owned())).to_vec())
    }

    /// Whether the objects of this mode get their CA bundle from a value: with an external certificate. Another one's belongs
    /// to who publishes it.
    pub(super) fn gives_bundle(mode: &Mode) -> bool {
        mode.get(CERTIFICATES).is_some_and(|mode| CertificateMode::ALL[*mode] == CertificateMode::External)
    }

    /// Whether kinds stay when this chart of kinds is uninstalled.
    pub(super) fn keeps(mode: &Mode) -> bool {
        mode.get(KEPT) == Some(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_that_stands_for_a_name_is_part_of_another() {
        let words = Chart { what: What::Operator, own_values: true }.names().0;
        for (word, _) in &words {
            assert_eq!(words.iter().filter(|(other, _)| other.contains(word)).count(), 1, "{word}");
        }
    }
}
