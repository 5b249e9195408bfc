//! `doctor` diagnoses an installation, and `doctor explain` a manifest.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use rustls::crypto::CryptoProvider;
use serde_json::Value;

use super::connect::answering;
use super::durations::duration;
use super::flags::Output;
use super::generate::{installation_arguments, program, quoted};
use super::input::read;
use super::installation::InstallationFlags;
use crate::installation::{entries, label};
use crate::{Components, Installation, Operator};
use portcullis_doctor::{Kind, Options, Report, Subject, Verdict, examine, explain};

/// The largest size of a file with manifests.
const LARGEST_FILE: u64 = 4 * 1024 * 1024;
/// The file by which a process finds that it runs in a pod.
const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

#[derive(clap::Args, Clone, Debug)]
pub(super) struct DoctorFlags {
    #[command(subcommand)]
    command: Option<DoctorCommand>,
    /// Kubeconfig file [default: KUBECONFIG, then ~/.kube/config, then the cluster that the process runs in]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace that the operator is installed in [default: <release>-system]
    #[arg(long, value_parser = label)]
    pub(super) namespace: Option<String>,
    #[command(flatten)]
    pub(super) installation: InstallationFlags,
    /// Check only objects of this namespace, and whether the webhooks are called for it
    #[arg(long, value_name = "NAMESPACE", value_parser = label)]
    in_namespace: Option<String>,
    /// An object whose deletion takes longer counts as stuck
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    stuck_after: Duration,
    /// Also call the pods by their addresses; always done where the command runs inside the cluster
    #[arg(long)]
    call_pods: bool,
    /// Explain this refusal: the message that `kubectl` showed
    #[arg(long, value_name = "MESSAGE")]
    denial: Option<String>,
    /// Find what the pods' logs say about the object of this name
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
    /// Also show the checks that pass
    #[arg(long)]
    all: bool,
    /// Output format
    #[arg(long, default_value = "text")]
    output: Output,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: Colour,
    /// When set, no colours are used unless --color says so
    #[arg(long, env = "NO_COLOR", hide = true, default_value = "")]
    no_color: String,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum DoctorCommand {
    /// Say which webhook rules the objects of a file break, without a cluster
    ///
    /// Objects that webhooks read from a cache are taken from these files too: a webhook is not evaluated while they
    /// hold no object of a kind that it reads.
    ///
    /// Only the API server evaluates schemas, CEL rules, policies and mutating webhooks: ask it with
    /// `kubectl apply --dry-run=server -f FILE`.
    Explain {
        /// File with manifests, as YAML or JSON; may be given several times
        #[arg(short, long, value_name = "FILE", required = true)]
        filename: Vec<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Colour {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl DoctorFlags {
    fn colours(&self) -> bool {
        match self.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => self.no_color.is_empty() && std::io::stdout().is_terminal(),
        }
    }
}

/// Runs the checks and prints the findings. Fails when a check fails.
pub(super) async fn perform<A: clap::Args>(
    operator: &Operator<A>,
    components: Components,
    flags: DoctorFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    let installation = operator.resolve(&flags.installation, flags.namespace.as_deref())?;
    let subject = subject(operator, &components, installation)?;
    let report = match &flags.command {
        Some(DoctorCommand::Explain { filename }) => {
            let mut objects = Vec::new();
            for file in filename {
                objects.extend(manifests(file)?);
            }
            let webhooks = components.webhooks.with_overrides(&subject.installation.overrides);
            let findings = explain(&webhooks, &objects).await;
            let files: Vec<String> = filename.iter().map(|file| file.display().to_string()).collect();
            Report { subject: files.join(", "), requests: 0, findings }
        }
        None => {
            // Every check that cannot look only warns: without an answer the exit code would say that all is well.
            let client = answering(flags.kubeconfig.as_deref()).await?;
            let options = Options {
                in_namespace: flags.in_namespace.clone(),
                stuck_after: flags.stuck_after,
                call_pods: flags.call_pods || Path::new(IN_CLUSTER).exists(),
                denial: flags.denial.clone(),
                object: flags.object.clone(),
            };
            examine(client, &provider, &subject, &options).await
        }
    };
    print(&report, &flags)
}

fn print(report: &Report, flags: &DoctorFlags) -> anyhow::Result<()> {
    let text = match flags.output {
        Output::Text => report.text(flags.colours(), flags.all),
        Output::Json => serde_json::to_string_pretty(report)? + "\n",
    };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot write to standard output")?;
    match report.count(Verdict::Fail) {
        0 => Ok(()),
        1 => anyhow::bail!("1 check failed"),
        failed => anyhow::bail!("{failed} checks failed"),
    }
}

/// The objects that should exist, by the registration.
fn subject<A: clap::Args>(
    operator: &Operator<A>,
    components: &Components,
    installation: Installation,
) -> anyhow::Result<Subject> {
    let webhooks = &components.webhooks;
    let restricted = installation.restricted_to.is_some();
    let conversions = if restricted { Vec::new() } else { webhooks.conversions()? };
    Ok(Subject {
        program: program(operator.name),
        flags: flags_of(&installation),
        webhooks: entries(&installation, webhooks)?,
        conversions: conversions.into_iter().map(|conversion| (conversion.crd, conversion.path)).collect(),
        kinds: operator.crds.iter().filter_map(kind).collect(),
        rights: operator.rights(&installation, components)?,
        installation,
    })
}

fn kind(crd: &CustomResourceDefinition) -> Option<Kind> {
    let version = crd.spec.versions.iter().find(|version| version.storage)?;
    Some(Kind {
        crd: format!("{}.{}", crd.spec.names.plural, crd.spec.group),
        group: crd.spec.group.clone(),
        version: version.name.clone(),
        kind: crd.spec.names.kind.clone(),
        plural: crd.spec.names.plural.clone(),
        namespaced: crd.spec.scope == "Namespaced",
    })
}

/// The flags that name this installation to a command, each after a space.
fn flags_of(installation: &Installation) -> String {
    let Installation { release, namespace, .. } = installation;
    let own = (*namespace != format!("{release}-system")).then(|| format!("--namespace={namespace}"));
    let flags = own.into_iter().chain(installation_arguments(installation));
    flags.flat_map(|flag| [" ".to_owned(), quoted(flag)]).collect()
}

/// The objects of a file.
fn manifests(file: &Path) -> anyhow::Result<Vec<Value>> {
    let unusable = || format!("cannot use {}", file.display());
    let text = String::from_utf8(read(file, LARGEST_FILE).with_context(unusable)?).with_context(unusable)?;
    let mut parsed: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(unusable)?;
    parsed.retain(|document| !document.is_null());
    anyhow::ensure!(!parsed.is_empty(), "{} holds no manifest", file.display());
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    use super::*;
    use portcullis_webhook::{Context, Validate, Verdict, Webhooks};

    // `generate` and `run` leave such a webhook out, so `doctor` must not miss it.
    #[test]
    fn a_restricted_installation_has_no_cluster_scoped_webhooks() {
        let webhooks = Webhooks::new()
            .validate(Validate::<ConfigMap>::new("small").on_create(async |_, _: Context| Verdict::allow()))
            .validate(Validate::<Node>::new("known").on_create(async |_, _: Context| Verdict::allow()));
        let (operator, components) = (Operator::new("op"), Components::new(webhooks));
        for (restricted_to, expected) in [(None, vec!["small", "known"]), (Some("team".to_owned()), vec!["small"])] {
            let mut installation = operator.installation("here").unwrap();
            installation.restricted_to = restricted_to;
            let subject = subject(&operator, &components, installation).unwrap();
            let names: Vec<_> = subject.webhooks.iter().map(|one| one.name.split('.').next().unwrap()).collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let said = manifests(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(format!("{said:#}"), "cannot use /dev/zero: it is larger than 4194304 bytes");
    }
}
