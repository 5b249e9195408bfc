//! `generate`: manifests from the registration, and their comparison with files.

mod arguments;
mod certificates;
mod files;
mod objects;

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;
use portcullis_manifest::{CertificateMode, Deadlock, IssuerRef, kustomization, to_yaml};
use serde_json::Value;

#[cfg(feature = "doctor")]
pub(super) use self::arguments::installation_arguments;
pub(super) use self::arguments::{own_arguments, program, quoted};
use self::files::{File, deliver, ours};
use self::objects::Objects;
use super::flags::ListenFlags;
use super::installation::InstallationFlags;
use crate::Operator;
use crate::error::ComponentsError;
use crate::installation::{InstallationError, label};

/// The manifests to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum What {
    /// The custom resource definitions
    Crds,
    /// The webhook configurations
    Webhooks,
    /// The policies with the CEL rules of webhooks, which the API server evaluates by itself
    Policies,
    /// ServiceAccount, roles and bindings
    Rbac,
    /// The whole installation: Deployment, Service, PodDisruptionBudget, NetworkPolicy, and all of the others
    Operator,
    /// The objects that the chosen source of certificates needs
    Certificates,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crds => "crds",
            Self::Webhooks => "webhooks",
            Self::Policies => "policies",
            Self::Rbac => "rbac",
            Self::Operator => "operator",
            Self::Certificates => "certificates",
        })
    }
}

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Manifests
    #[default]
    Yaml,
    /// Manifests, and a kustomization.yaml that names them
    Kustomize,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct GenerateFlags {
    /// Namespace that the operator is installed in [default: <release>-system]
    #[arg(long, value_parser = label)]
    pub(super) namespace: Option<String>,
    #[command(flatten)]
    pub(super) installation: InstallationFlags,
    /// Image with the operator's binary as its entry point
    #[arg(long, value_parser = image)]
    image: Option<String>,
    #[command(flatten)]
    listen: ListenFlags,
    /// Number of replicas
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    replicas: u32,
    /// cert-manager's issuer, as NAME, Issuer/NAME or ClusterIssuer/NAME [default: one that is made for this operator]
    #[arg(long)]
    issuer: Option<IssuerRef>,
    /// PEM file with the CAs of an external certificate, for every caBundle
    #[arg(long, value_name = "FILE")]
    ca_bundle: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t, requires_if("kustomize", "out"))]
    format: Format,
    /// Folder to write files to, over those written before [default: standard output]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write nothing; fail and name the files in --out that differ
    #[arg(long, requires = "out")]
    check: bool,
}

/// A reference to an image; what is wrong in it beyond that, the kubelet says.
fn image(text: &str) -> Result<String, &'static str> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err("give an image as in registry.example/operator:1.0, without spaces")
}

/// An error while manifests are generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum GenerateError {
    /// The flags do not name an installation.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// The registration is at fault.
    #[error(transparent)]
    Registration(#[from] ComponentsError),
    /// It would lock a cluster.
    #[error(transparent)]
    Deadlock(#[from] Deadlock),
    /// A Deployment without an image.
    #[error("generate operator needs --image IMAGE")]
    NoImage,
    /// A Deployment whose Pods cannot be called.
    #[error("{0}")]
    Address(String),
    /// Two flags that do not go together.
    #[error("{flag} is for --certificates {mode}: give both or neither")]
    OtherMode {
        /// The given flag.
        flag: &'static str,
        /// The mode that it belongs to.
        mode: &'static str,
    },
    /// Applied, it would replace another installation.
    #[error(
        "a restricted operator under the default names would replace the cluster-wide one: its Deployment, Service and \
         roles in namespace {namespace} have the same names; give --release NAME, --namespace NAMESPACE, or both"
    )]
    Replaces {
        /// The namespace of both.
        namespace: String,
    },
    /// The given bundle would make no caller trust anything.
    #[error("--ca-bundle {}: {problem}", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// The problem, and the fix.
        problem: String,
    },
    /// A value that JSON or YAML cannot hold.
    #[error("cannot write the manifests: {0}")]
    Encode(#[from] serde_json::Error),
    /// A value that YAML cannot hold.
    #[error(transparent)]
    Yaml(#[from] portcullis_manifest::YamlError),
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read`, `write`, `create` or `remove`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The folder to write to is a file.
    #[error("--out {} is a file: give a folder", .0.display())]
    NoFolder(PathBuf),
    /// A folder, a pipe or a device has the path of a file.
    #[error("{} is no file: move it away, or give another --out", .0.display())]
    NoFile(PathBuf),
    /// Files of others have the names of these.
    #[error(
        "{} holds what 'generate' of this operator did not write: {}; move it away, or give another --out",
        folder.display(), foreign.join(", ")
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// Names of the files.
        foreign: Vec<String>,
    },
    /// The existing kustomization would be replaced, so nothing would name its files any more.
    #[error(
        "{} names what another 'generate' wrote: omit --format kustomize, or give another --out",
        .0.join(KUSTOMIZATION).display()
    )]
    Kustomization(PathBuf),
    /// `--check` found files that are not what would be generated.
    #[error("{} is not what is generated: {}; write it again with: {command}", folder.display(), differing.join(", "))]
    Stale {
        /// The folder.
        folder: PathBuf,
        /// Names of the files, each with what is the matter with it.
        differing: Vec<String>,
        /// The command that writes them again.
        command: String,
    },
}

/// Generates `what`, and prints, writes or compares it. `own` are the operator's own arguments, as given.
pub(super) fn perform<A: clap::Args>(
    operator: &Operator<A>,
    args: &A,
    what: What,
    flags: &GenerateFlags,
    own: Vec<String>,
) -> anyhow::Result<()> {
    let components =
        operator.components(args, &flags.installation.setup_context(operator.name, flags.namespace.as_deref()))?;
    if what == What::Operator && flags.image.is_none() {
        return Err(GenerateError::NoImage.into());
    }
    flags.listen.check_in_pod().map_err(GenerateError::Address)?;
    let objects = Objects::new(operator, &components, flags, own)?;
    let defaults = flags.namespace.is_none() && flags.installation.release.is_none();
    if defaults && flags.installation.restrict_to_namespace.is_some() && matches!(what, What::Operator | What::Rbac) {
        return Err(GenerateError::Replaces { namespace: objects.namespace().to_owned() }.into());
    }
    for warning in objects.warnings(what) {
        // A closed standard error is no reason to fail.
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    let issued = flags.installation.certificates == CertificateMode::CertManager;
    let heads = Heads { operator: operator.name, issued };
    Ok(deliver(operator.name, &heads.removed_by(what), &files(&objects, what, flags.format, heads)?, flags)?)
}

/// The first lines of generated files. A file has the same one whichever command wrote it: `generate rbac` and
/// `generate operator` write the same `rbac.yaml`.
#[derive(Clone, Copy)]
struct Heads {
    operator: &'static str,
    /// Whether cert-manager issues certificates.
    issued: bool,
}

impl Heads {
    fn of(self, what: What) -> String {
        match what {
            What::Certificates if self.issued => self.issued(),
            _ => self.line(&what.to_string()),
        }
    }

    /// A marker that examples, which a person fills in, do not have.
    fn issued(self) -> String {
        self.line("certificates --certificates cert-manager")
    }

    fn line(self, command: &str) -> String {
        format!("{}{command}'. Do not edit.\n", ours(self.operator))
    }

    /// The first lines of files that this command removes when it does not generate them any more.
    fn removed_by(self, what: What) -> Vec<String> {
        match what {
            What::Operator => {
                let parts = [What::Operator, What::Crds, What::Rbac, What::Webhooks, What::Policies];
                parts.map(|part| self.line(&part.to_string())).into_iter().chain([self.issued()]).collect()
            }
            What::Certificates => vec![self.line("certificates"), self.issued()],
            What::Crds | What::Webhooks | What::Policies | What::Rbac => vec![self.of(what)],
        }
    }
}

/// The files, in the order in which they are to be applied: kinds before their webhooks, rights before the operator.
fn files(objects: &Objects<'_>, what: What, format: Format, heads: Heads) -> Result<Vec<File>, GenerateError> {
    let mut files = Vec::new();
    let mut file = |name: &str, part: What, note: &str, objects: &[Value]| -> Result<(), GenerateError> {
        if !(objects.is_empty() && note.is_empty()) {
            let head = heads.of(part);
            files.push(File { name: format!("{name}.yaml"), text: format!("{head}{note}{}", to_yaml(objects)?) });
        }
        Ok(())
    };
    let all = what == What::Operator;
    if all || what == What::Crds {
        for (name, crd) in objects.crds()? {
            file(&name, What::Crds, "", &[crd])?;
        }
    }
    if all || what == What::Rbac {
        file("rbac", What::Rbac, "", &objects.rbac())?;
    }
    match what {
        What::Operator => file("certificates", What::Certificates, "", &objects.certificates())?,
        What::Certificates => {
            let (note, manifests) = objects.certificates_explained();
            file("certificates", What::Certificates, &note, &manifests)?;
        }
        What::Crds | What::Webhooks | What::Policies | What::Rbac => {}
    }
    if all || what == What::Policies {
        file("policies", What::Policies, "", &objects.policies()?)?;
    }
    if all {
        file("operator", What::Operator, "", &objects.operator())?;
    }
    if all || what == What::Webhooks {
        file("webhooks", What::Webhooks, "", &objects.webhooks()?)?;
    }
    if format == Format::Kustomize {
        let kustomization = kustomization(files.iter().map(|file| file.name.as_str()));
        let text = format!("{}{NAMES_ARE_FINAL}{}", heads.line(&what.to_string()), to_yaml(&[kustomization])?);
        files.push(File { name: KUSTOMIZATION.to_owned(), text });
    }
    Ok(files)
}

/// The one file that names the others.
const KUSTOMIZATION: &str = "kustomization.yaml";

/// The comment at the top of a kustomization, for those who build on it.
const NAMES_ARE_FINAL: &str = "\
# Names and namespaces are final: to change them, generate again with --release, --namespace or --service-name. An
# overlay with namePrefix or namespace would miss those in arguments, in roles and in the conversion of CRDs.
";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser as _;
    use k8s_openapi::api::core::v1::{Node, Pod};

    use super::*;
    use portcullis_webhook::{AdmissionObject, Context, Validate, Verdict, Webhooks};

    #[derive(clap::Parser)]
    struct Line {
        what: What,
        #[command(flatten)]
        flags: GenerateFlags,
    }

    fn generated<K: AdmissionObject>(line: &[&str]) -> Result<(), String> {
        let judge = |_: Arc<K>, _: Context| async { Verdict::allow() };
        let webhooks = move || Webhooks::new().validate(Validate::<K>::new("all").on_create(judge));
        let Line { what, flags } = Line::parse_from([&["op"], line].concat());
        let operator = Operator::new("op").webhooks(webhooks());
        perform(&operator, &(), what, &flags, Vec::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_image_that_is_none_is_not_written_into_a_deployment() {
        for (given, taken) in
            [("op:1", true), ("a.b:5000/c/d@sha256:0a", true), ("", false), ("a b", false), ("a\nb", false)]
        {
            assert_eq!(image(given).is_ok(), taken, "{given:?}");
        }
    }

    // K8: for each command of `generate`.
    #[test]
    fn what_would_lock_a_cluster_is_not_generated() {
        for what in ["crds", "webhooks", "rbac", "operator", "certificates"] {
            let said = generated::<Node>(&[what, "--image", "op"]).unwrap_err();
            assert!(said.contains("could lock the cluster: it fails closed and its rule names nodes: "), "{said}");
            let folder = tempfile::tempdir().unwrap();
            generated::<Pod>(&[what, "--image", "op", "--out", folder.path().to_str().unwrap()]).unwrap();
            // Its own namespace is the only one that it would judge.
            let alone = ["--namespace", "here", "--restrict-to-namespace", "here"];
            let said = generated::<Pod>(&[&[what, "--image", "op"], &alone[..]].concat()).unwrap_err();
            assert!(said.contains("selects namespace here, which it has to leave alone"), "{said}");
        }
    }
}
