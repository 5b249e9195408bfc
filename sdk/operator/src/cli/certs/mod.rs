//! `certs`: commands for certificates, for a person or a hook Job of an installation.

mod show;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use jiff::SignedDuration;
use portcullis_pki::Certificate;
use portcullis_pki::rotation::{Phase, RotationTiming};
use rustls::crypto::CryptoProvider;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::connect::answering;
use super::durations::{duration, duration_within};
use super::flags::Output;
use super::installation::InstallationFlags;
use crate::certificate_source::{certificate_maker, certificate_source};
use crate::installation::{configurations, label};
use crate::{Components, Installation, Operator};
use portcullis_certificates::{Automatic, CertificateSource, ServingCertificate};
use portcullis_manifest::CertificateMode;

/// The default validity of certificates that nothing renews between upgrades.
const VALIDITY: &str = "3650d";
/// The pause between two looks at the stored certificates.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Subcommand)]
pub(super) enum Certs<A: clap::Args> {
    /// Create or repair the Secrets, and with --certificates hooks add the CA to those that are published; only check
    /// the Secrets where cert-manager or you fill them
    #[command(visible_alias = "generate")]
    Ensure {
        #[command(flatten)]
        flags: CertsFlags,
        /// Validity of a new certificate, with --certificates hooks: nothing renews it before this command does
        #[arg(long, value_name = "DURATION", default_value = VALIDITY, value_parser = validity)]
        certificate_validity: SignedDuration,
        #[command(flatten)]
        args: A,
    },
    /// Publish the CA in the webhook configurations and CRDs, and wait until it is there; only wait where cert-manager
    /// or you publish it
    #[command(visible_alias = "inject")]
    Publish {
        #[command(flatten)]
        flags: CertsFlags,
        #[command(flatten)]
        args: A,
    },
    /// Start a rotation of the CA, which the replicas carry out
    Rotate {
        #[command(flatten)]
        flags: CertsFlags,
        #[command(flatten)]
        args: A,
    },
    /// Show the stored certificates and the published CA; exit with 1 if something is wrong
    Show {
        #[command(flatten)]
        flags: CertsFlags,
        /// Output format
        #[arg(long, default_value = "text")]
        output: Output,
        #[command(flatten)]
        args: A,
    },
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct CertsFlags {
    /// Kubeconfig file [default: KUBECONFIG, then ~/.kube/config, then the cluster that the process runs in]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace that the operator is installed in [default: <release>-system]
    #[arg(long, value_parser = label)]
    pub(super) namespace: Option<String>,
    #[command(flatten)]
    pub(super) installation: InstallationFlags,
    /// Give up after this long
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration_within(1, 86_400))]
    timeout: Duration,
}

/// The action of a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Ensure { validity: SignedDuration },
    Publish,
    Rotate,
    Show { output: Output },
}

impl<A: clap::Args> Certs<A> {
    /// Splits the command into its action, its flags and the operator's own arguments.
    pub(super) fn parts(self) -> (What, CertsFlags, A) {
        match self {
            Self::Ensure { flags, certificate_validity, args } => {
                (What::Ensure { validity: certificate_validity }, flags, args)
            }
            Self::Publish { flags, args } => (What::Publish, flags, args),
            Self::Rotate { flags, args } => (What::Rotate, flags, args),
            Self::Show { flags, output, args } => (What::Show { output }, flags, args),
        }
    }
}

/// The deadline of the command.
#[derive(Clone, Copy)]
struct Patience {
    time: Duration,
    end: Instant,
}

impl Patience {
    /// No request to the API server takes longer.
    async fn answer<T>(self, asked: impl Future<Output = T>) -> anyhow::Result<T> {
        let late = || format!("the API server did not answer within {} s; is it reachable?", self.time.as_secs());
        timeout_at(self.end, asked).await.with_context(late)
    }
}

pub(super) async fn perform<A: clap::Args>(
    operator: &Operator<A>,
    components: Components,
    what: What,
    flags: CertsFlags,
    provider: Arc<CryptoProvider>,
) -> anyhow::Result<()> {
    let installation = operator.resolve(&flags.installation, flags.namespace.as_deref())?;
    let patience = Patience { time: flags.timeout, end: Instant::now() + flags.timeout };
    let client = patience.answer(answering(flags.kubeconfig.as_deref())).await??;
    let configurations = configurations(&installation, &components.webhooks)?;
    let routes = components.webhooks.routes()?;
    let (components, metrics) = (&components, routes.metrics());
    let hooks = installation.certificates == CertificateMode::Hooks;
    if let (What::Ensure { validity }, true) = (what, hooks) {
        // Such certificates are issued here only.
        let maker = certificate_maker(&installation, components, client, provider, configurations, metrics);
        return ensure_for_upgrade(&installation, maker, validity, patience).await;
    }
    let source = certificate_source(&installation, components, client, provider, configurations, metrics);
    match what {
        What::Ensure { .. } => {
            let material = patience.answer(source.ensure()).await??;
            say(&sound(&installation, &material)?)
        }
        What::Publish => {
            let source = match source {
                CertificateSource::ProvidedCertificates(stored) if hooks => {
                    CertificateSource::ProvidedCertificates(stored.with_publishing())
                }
                source => source,
            };
            publish(&installation, &source, patience).await
        }
        What::Rotate => match &source {
            CertificateSource::Automatic(automatic) => rotate(&installation, automatic, patience).await,
            CertificateSource::ProvidedCertificates(_) => anyhow::bail!(elsewhere(&installation)),
        },
        What::Show { output } => {
            let shown = patience.answer(show::look(&installation, &source)).await??;
            say(&match output {
                Output::Text => shown.to_string(),
                Output::Json => serde_json::to_string_pretty(&shown)? + "\n",
            })?;
            anyhow::ensure!(
                shown.is_sound(),
                "something is wrong with the certificates or where they are published: see above"
            );
            Ok(())
        }
    }
}

/// A closed standard output is no error.
fn say(text: &str) -> anyhow::Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// Makes certificates that last until the next upgrade, where those that are stored do not.
async fn ensure_for_upgrade(
    installation: &Installation,
    mut maker: Automatic,
    validity: SignedDuration,
    patience: Patience,
) -> anyhow::Result<()> {
    maker.timing = maker.timing.with_validity(validity);
    let material = patience.answer(maker.ensure_unattended()).await??;
    say(&sound(installation, &material)?)?;
    // Callers keep trusting the certificate that is served now, and trust the next one before it is served.
    let added = patience.answer(maker.add_to_bundles(installation.operator, &material)).await?;
    let added = added.context("cannot add the CA to what is published; compare the roles of this command's Job")?;
    added.iter().try_for_each(|object| say(&format!("added the CA to what is trusted: {object}\n")))
}

/// Reads `3650d`, or what is a duration to other flags.
fn validity(text: &str) -> Result<SignedDuration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u16>().ok());
    let days = days.map(|days| SignedDuration::from_hours(24 * i64::from(days)));
    let time = match days {
        Some(time) => time,
        None => SignedDuration::try_from(duration(text)?).map_err(|error| error.to_string())?,
    };
    // One that ends sooner would be replaced each time.
    if time <= RotationTiming::default().leaf_left {
        return Err("give more than 30 days, as in 365d".to_owned());
    }
    Ok(time)
}

fn sound(installation: &Installation, material: &ServingCertificate) -> anyhow::Result<String> {
    let leaf = Certificate::from_pem(material.cert_pem.as_bytes())?;
    let Installation { namespace, secret, .. } = installation;
    Ok(format!(
        "Secret {namespace}/{secret}: a certificate for {}, until {}\n",
        leaf.dns_names.join(", "),
        leaf.not_after
    ))
}

/// Why the CA is not ours to rotate.
fn elsewhere(installation: &Installation) -> String {
    let Installation { namespace, secret, .. } = installation;
    match installation.certificates {
        CertificateMode::CertManager => format!(
            "cert-manager makes these certificates: 'cmctl renew -n {namespace} {secret}-root', and then 'cmctl renew -n \
             {namespace} {secret}', has it make new ones, which every replica takes up"
        ),
        CertificateMode::Hooks => format!(
            "these certificates are made at each upgrade: 'kubectl -n {namespace} delete secret {secret}', and the next \
             upgrade makes a new one under the same CA; without the Secret {ca} as well, also a new CA, beside which the old \
             one stays trusted: to end that, kubectl -n {namespace} patch secret {ca} --type=merge \
             -p '{{\"data\":{{\"previous.crt\":null}}}}', and upgrade once more",
            ca = installation.ca_secret()
        ),
        _ => format!(
            "these certificates are your own: apply 'generate webhooks' and 'generate crds' with an --ca-bundle FILE that \
             holds the old and the new CA, then put the new pair into Secret {namespace}/{secret}, then apply them with the \
             new CA alone"
        ),
    }
}

/// Does what a replica does, until all entries hold the bundle.
async fn publish(installation: &Installation, source: &CertificateSource, patience: Patience) -> anyhow::Result<()> {
    let material = patience.answer(source.ensure()).await??;
    let (stop, configurations) = (CancellationToken::new(), source.configurations());
    let bundle = source.bundle(installation.operator, &material);
    let mut missing = "an answer of the API server".to_owned();
    // A rotation goes on while this waits: the bundle from before would cut off what is served.
    let stored = async {
        let mut logged = String::new();
        loop {
            sleep(LOOK).await;
            let error = source.publish_stored(&bundle).await.map_or_else(|error| error.to_string(), |()| String::new());
            if error != logged && !error.is_empty() {
                warn!(error, "cannot read the certificate Secrets again, for the CA bundle to publish; retrying");
            }
            logged = error;
        }
    };
    let published = async {
        let published = bundle.wait_until_published(configurations, |said| said.clone_into(&mut missing));
        let published = tokio::select! {
            published = timeout_at(patience.end, published) => published,
            never = stored => never,
        };
        stop.cancel();
        published
    };
    let (published, ()) = tokio::join!(published, bundle.maintain(source.client(), configurations, &stop));
    if published.is_err() {
        anyhow::bail!("timed out after {} s waiting for {missing}", patience.time.as_secs());
    }
    let shown = patience.answer(show::look(installation, source)).await??;
    // A kind that another installation converts is not ours to publish in.
    let mut ours = shown.published.iter().filter(|entry| entry.problem.is_none());
    ours.try_for_each(|entry| say(&format!("published: {}, {}\n", entry.object, entry.entry)))
}

async fn rotate(installation: &Installation, automatic: &Automatic, patience: Patience) -> anyhow::Result<()> {
    let before = patience.answer(automatic.stored()).await??;
    let under_way = before.authorities.as_ref().is_ok_and(|authorities| authorities.phase() != Phase::Steady);
    let phase = patience.answer(automatic.rotate()).await??;
    let begun = if under_way { "is under way already" } else { "has begun" };
    say(&format!(
        "{}: a rotation {begun}: {}\nthe running replicas carry it on, and 'certs show' shows its progress; none running? \
         start the operator\n",
        installation.release,
        name(phase)
    ))
}

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Publishing => "publishing (the next CA is made known; nothing is issued under it yet)",
        Phase::Draining => "draining (certificates come from the new CA; the old one is still trusted)",
        _ => "steady (one CA)",
    }
}
