//! The command line: the only module that names clap.

mod certs;
mod connect;
#[cfg(feature = "dev")]
mod dev;
#[cfg(feature = "doctor")]
mod doctor;
mod durations;
mod flags;
mod generate;
mod input;
mod installation;
mod memory_limit;
#[cfg(feature = "migrate")]
mod migrate;
mod overrides;
mod run;
mod signals;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rustls::crypto::CryptoProvider;
use tracing_subscriber::EnvFilter;

use self::certs::Certs;
#[cfg(feature = "dev")]
use self::dev::DevFlags;
#[cfg(feature = "doctor")]
use self::doctor::DoctorFlags;
use self::generate::{GenerateFlags, What};
#[cfg(feature = "migrate")]
use self::migrate::MigrateFlags;
use self::run::{LogFormat, RunFlags};
use crate::Operator;
use crate::convertible::convertible;
use crate::installation::{service_name, service_of};
use portcullis_client::error_chain;
use portcullis_manifest::messages::FAILED;

/// The command line, with the feature `cli`.
#[cfg_attr(docsrs, doc(cfg(feature = "cli")))]
impl<A: clap::Args> Operator<A> {
    /// Parses the command line and runs the subcommand. Call it as the binary's `main`, before anything that uses TLS:
    /// it installs the process's crypto provider.
    pub fn main(self) -> ExitCode {
        self.main_with_args(std::env::args_os())
    }

    /// Does as [`main`](Self::main), with this command line: for a binary that takes another one, and translates it.
    /// The first argument is the program's name.
    pub fn main_with_args(self, args: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
        main(self, args.into_iter().map(Into::into).collect())
    }

    /// The command line as a [`clap::Command`], for shell completions and manual pages. Call
    /// [`debug_assert`](clap::Command::debug_assert) on it in a test: clap looks in debug builds alone for an argument
    /// of the operator's own that has the name of another one.
    pub fn command(&self) -> clap::Command {
        command(self)
    }
}

#[derive(Parser)]
#[command(about = "A Kubernetes operator with admission webhooks")]
struct Cli<A: clap::Args> {
    #[command(subcommand)]
    command: Command<A>,
}

#[derive(Subcommand)]
enum Command<A: clap::Args> {
    /// Serve the webhooks and run the controllers, until SIGTERM
    Run {
        #[command(flatten)]
        flags: Box<RunFlags>,
        #[command(flatten)]
        args: A,
    },
    /// Issue, publish, rotate and show the certificates of the webhooks
    #[command(subcommand)]
    Certs(Certs<A>),
    /// Serve the webhooks from this machine to a cluster, until Ctrl-C
    #[cfg(feature = "dev")]
    Dev {
        #[command(flatten)]
        flags: DevFlags,
        #[command(flatten)]
        args: A,
    },
    /// Check an installation, and say how to fix what keeps it from working
    #[cfg(feature = "doctor")]
    Doctor {
        #[command(flatten)]
        flags: DoctorFlags,
        #[command(flatten)]
        args: A,
    },
    /// Rewrite every stored object in the storage version of its kind
    ///
    /// An object stays stored in the version in which it was last written. This rewrites all objects unchanged, and
    /// then drops the versions that store nothing any more from status.storedVersions of the CRD, so that they can be
    /// removed from it. Run it when every API server has taken up the CRD, while the operator runs; where the CRD in
    /// the cluster has another storage version than this operator's, it writes nothing and says so. It may be stopped
    /// at any time and run again: nothing is rewritten twice. Objects that the API server refuses are listed and keep
    /// their versions from being dropped; the exit code is then 1.
    ///
    /// It needs the rights to get customresourcedefinitions, to patch customresourcedefinitions/status, and to list and
    /// patch the objects.
    #[cfg(feature = "migrate")]
    MigrateStorage {
        #[command(flatten)]
        flags: MigrateFlags,
    },
    /// Write manifests, from the same registration that is served
    Generate {
        /// Which manifests to write
        what: What,
        #[command(flatten)]
        flags: GenerateFlags,
        #[command(flatten)]
        args: A,
    },
}

fn command<A: clap::Args>(operator: &Operator<A>) -> clap::Command {
    // WATCH_NAMESPACE in a shell does not restrict the other commands: they are for whole clusters.
    let restricted = |command: clap::Command| match command.get_name() {
        "run" => command.mut_arg("restrict_to_namespace", |flag| flag.env("WATCH_NAMESPACE")),
        _ => command,
    };
    Cli::<A>::command().name(operator.name).version(operator.version).mut_subcommands(restricted)
}

/// The binary's entry. Errors are one line on standard error, and exit code 1; a command line that does not parse is
/// explained, with exit code 2.
fn main<A: clap::Args>(operator: Operator<A>, words: Vec<OsString>) -> ExitCode {
    let matches = matches(&command(&operator), &words);
    let parsed = Cli::<A>::from_arg_matches(&matches).map_err(anyhow::Error::from);
    let result = parsed.and_then(|cli| perform(operator, cli.command, &matches));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error is no reason to fail.
            let _ = writeln!(std::io::stderr(), "{FAILED}{}", error_chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Parses the words of a command line. The process ends here where they do not parse.
fn matches(command: &clap::Command, words: &[OsString]) -> ArgMatches {
    let matches = command.clone().try_get_matches_from(words);
    matches.unwrap_or_else(|error| from_environment(command, words, error).exit())
}

/// Names the environment variable that an invalid value came from, when it was not given on the command line.
fn from_environment(command: &clap::Command, words: &[OsString], mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg).cloned() else { return error };
    let long = flag.split(' ').next().unwrap_or_default();
    let given = words.iter().any(|word| word.to_string_lossy().split('=').next() == Some(long));
    let mut known = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let variable = known
        .find(|known| known.get_env().is_some() && known.get_long() == long.strip_prefix("--"))
        .and_then(Arg::get_env);
    if let Some(variable) = variable.filter(|_| !given) {
        let tip = format!("{long} was not given: the value is that of the environment variable {}", variable.display());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn perform<A: clap::Args>(mut operator: Operator<A>, command: Command<A>, matches: &ArgMatches) -> anyhow::Result<()> {
    // Every command refuses an operator whose name cannot name its objects.
    let service = service_of(operator.name);
    service_name(&service)
        .map_err(|fix| anyhow::anyhow!("operator {:?} cannot have a Service {service:?}: {fix}", operator.name))?;
    match command {
        Command::Generate { what, flags, args } => {
            let own = matches.subcommand().map(|(_, matches)| generate::own_arguments::<A>(matches));
            generate::perform(&operator, &args, what, &flags, own.unwrap_or_default())
        }
        Command::Certs(certs) => {
            let (what, flags, args) = certs.parts();
            init_log("warn,kube_client=off", LogFormat::Text)?;
            let provider = install_provider();
            let components = operator
                .components(&args, &flags.installation.setup_context(operator.name, flags.namespace.as_deref()))?;
            on_runtime(certs::perform(&operator, components, what, flags, provider))
        }
        #[cfg(feature = "dev")]
        Command::Dev { flags, args } => {
            init_log("info,kube_client=off", LogFormat::Text)?;
            let provider = install_provider();
            let components = operator
                .components(&args, &flags.installation.setup_context(operator.name, flags.namespace.as_deref()))?;
            convertible(&components.webhooks, &operator.crds)?;
            on_runtime(dev::perform(&operator, components, flags, provider))
        }
        #[cfg(feature = "doctor")]
        Command::Doctor { flags, args } => {
            init_log("error,kube_client=off", LogFormat::Text)?;
            let provider = install_provider();
            let components = operator
                .components(&args, &flags.installation.setup_context(operator.name, flags.namespace.as_deref()))?;
            on_runtime(doctor::perform(&operator, components, flags, provider))
        }
        #[cfg(feature = "migrate")]
        Command::MigrateStorage { flags } => {
            install_provider();
            on_runtime(migrate::perform(operator.name, &operator.crds, &flags))
        }
        Command::Run { flags, args } => {
            init_log(&flags.log, flags.log_format)?;
            let provider = install_provider();
            let components = operator
                .components(&args, &flags.installation.setup_context(operator.name, flags.namespace.as_deref()))?;
            // A version without a converter would fail later, when objects are read.
            convertible(&components.webhooks, &operator.crds)?;
            // Schemas take megabytes, and are not read from here on.
            operator.crds = Vec::new();
            on_runtime(run::run(&operator, components, *flags, provider))
        }
    }
}

fn install_provider() -> Arc<CryptoProvider> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    // Already installed is fine: then the application chose one before us.
    let _ = provider.as_ref().clone().install_default();
    provider
}

fn on_runtime(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    // A blocking task had its time to end.
    runtime.shutdown_background();
    result
}

fn init_log(log: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(log).with_context(|| format!("--log '{log}' is not a filter; try 'info'"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    }
    .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

#[cfg(test)]
mod tests {
    use kube::core::crd::merge_crds;
    use kube::{CustomResource, CustomResourceExt as _};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;
    use portcullis_webhook::Webhooks;
    use portcullis_webhook::conversion::Convert;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v1", kind = "Old", plural = "olds", namespaced)]
    struct OldSpec {}

    mod v2 {
        use super::*;
        #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[kube(group = "demo.example", version = "v2", kind = "Old", plural = "olds", namespaced)]
        pub(super) struct OldSpec {}
    }

    #[test]
    fn no_two_arguments_of_a_command_have_one_name() {
        command(&Operator::new("op")).debug_assert();
    }

    #[test]
    fn an_error_is_one_line_that_says_nothing_twice() {
        let file = std::io::Error::other("no such\nfile");
        let error = anyhow::Error::new(file).context("cannot read a: no such\nfile").context("cannot start");
        assert_eq!(error_chain(error.as_ref()), "cannot start: cannot read a: no such file");
        let steering = anyhow::anyhow!("denied: \x1b]0;mine\x07");
        assert_eq!(error_chain(steering.as_ref()), "denied: \\u{1b}]0;mine\\u{7}");
    }

    #[test]
    fn of_a_refusal_of_the_api_server_its_own_sentence_is_said() {
        let status = kube::core::Status::failure("namespaces \"a\" not found", "NotFound").with_code(404).boxed();
        let source = Box::new(kube::Error::Api(status.clone()));
        let (namespace, name) = ("a".to_owned(), "b".to_owned());
        let error = portcullis_certificates::CertificateError::Api { action: "create", namespace, name, source };
        assert_eq!(
            error_chain(&error),
            "cannot create Secret a/b: namespaces \"a\" not found; namespace a does not exist: kubectl create namespace a"
        );
        let error = anyhow::Error::new(kube::Error::Api(status)).context("cannot ask");
        assert_eq!(error_chain(error.as_ref()), "cannot ask: namespaces \"a\" not found");
    }

    #[test]
    fn an_operator_with_an_invalid_service_name_does_nothing() {
        for name in ["My Op", "", "1-op", "an-operator-whose-name-is-longer-than-what-a-service-may-be"] {
            let matches = Cli::<()>::command().get_matches_from(["op", "generate", "rbac"]);
            let command = Cli::<()>::from_arg_matches(&matches).unwrap().command;
            let said = perform(Operator::new(name), command, &matches).unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("operator {name:?} cannot have a Service \"{name}-webhook\": ")),
                "{said}"
            );
        }
    }

    // K3
    #[test]
    fn generate_and_run_refuse_a_version_without_a_converter() {
        for words in
            [&["generate", "crds"][..], &["generate", "rbac"], &["generate", "webhooks"], &["run", "--log", "off"]]
        {
            let crd = merge_crds(vec![Old::crd(), v2::Old::crd()], "v2").unwrap();
            // The converters of v1 are missing.
            let webhooks = || Webhooks::new().convert(Convert::<v2::Old>::hub());
            let operator = Operator::new("op").crds(vec![crd]).webhooks(webhooks());
            let matches = Cli::<()>::command().get_matches_from([&["op"], words].concat());
            let command = Cli::<()>::from_arg_matches(&matches).unwrap().command;
            assert_eq!(
                perform(operator, command, &matches).unwrap_err().to_string(),
                "conversion of Old: version v1 of Old has no converters; add .spoke() for it or remove it from the CRD",
                "{words:?}"
            );
        }
    }
}
