//! Arguments of the generated Deployment.

use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches};

use crate::Installation;
use crate::cli::overrides;
use crate::installation::{CLUSTER_DOMAIN, secret_of, service_of};
use portcullis_manifest::{CertificateMode, ServiceRef};

/// The flags of `run` by which a process knows that it belongs to this installation: those that differ from the
/// defaults. It learns its namespace from its Pod.
pub(crate) fn installation_arguments(installation: &Installation) -> Vec<String> {
    // Every field is named, so that a new one that is forgotten does not compile.
    let Installation {
        operator,
        release,
        namespace,
        leader_election_namespace,
        restricted_to,
        // It follows from the registration.
        scope_lease: _,
        service,
        cluster_domain,
        certificates,
        secret,
        webhooks,
        overrides,
    } = installation;
    let flags = [
        ("release", (release != operator).then(|| release.clone())),
        (
            "leader-election-namespace",
            (leader_election_namespace != namespace).then(|| leader_election_namespace.clone()),
        ),
        ("restrict-to-namespace", restricted_to.clone()),
        ("service-name", (service.name != service_of(release)).then(|| service.name.clone())),
        ("service-port", (service.port != ServiceRef::PORT).then(|| service.port.to_string())),
        ("cluster-domain", (cluster_domain != CLUSTER_DOMAIN).then(|| cluster_domain.clone())),
        ("certificates", (*certificates != CertificateMode::default()).then(|| certificates.to_string())),
        ("certificate-secret", (*secret != secret_of(release)).then(|| secret.clone())),
        ("webhooks", (!webhooks.is_on()).then(|| webhooks.to_string())),
    ];
    let flags = flags.map(|(flag, value)| (flag.to_owned(), value)).into_iter().chain(overrides::flags(overrides));
    flags.filter_map(|(flag, value)| Some(format!("--{flag}={}", value?))).collect()
}

/// The file name of the operator's binary, by which a user starts it; it need not be called as the operator is.
pub(crate) fn program(operator: &str) -> String {
    let started = std::env::args_os().next();
    let name = started.as_deref().and_then(|path| Path::new(path).file_name());
    name.map_or_else(|| operator.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Quotes a word of a command line for a shell.
pub(crate) fn quoted(word: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@".contains(c);
    if word.chars().all(plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The operator's own arguments, as they were given on the command line: webhooks and rights were made from them, so
/// the process has to be started with them. Values from the environment are left out: the same command line gives the
/// same bytes everywhere.
pub(crate) fn own_arguments<A: clap::Args>(matches: &ArgMatches) -> Vec<String> {
    let mut given = Vec::new();
    for argument in A::augment_args(clap::Command::new("own")).get_arguments() {
        let id = argument.get_id().as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let flag = match (argument.get_long(), argument.get_short()) {
            (Some(long), _) => Some(format!("--{long}")),
            (None, Some(short)) => Some(format!("-{short}")),
            (None, None) => None,
        };
        match (flag, argument.get_action()) {
            (Some(flag), ArgAction::SetTrue | ArgAction::SetFalse) => given.push(flag),
            (Some(flag), ArgAction::Count) => given.extend((0..matches.get_count(id)).map(|_| flag.clone())),
            (flag, _) => {
                let values = matches.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy());
                given.extend(values.map(|value| match &flag {
                    Some(flag) => format!("{flag}={value}"),
                    None => value.into_owned(),
                }));
            }
        }
    }
    given
}
