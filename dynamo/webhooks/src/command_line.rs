//! Dynamo's command line, as words for the SDK's `run`.
//!
//! It is flags alone, read as Go reads them: with one dash or two, `--flag=value` or `--flag value`, and `--flag` or
//! `--flag=false` where it is a switch. Flags of the SDK's `run` may stand beside them. A command line that begins with a
//! command is the SDK's own, and is left as it is.

use std::collections::VecDeque;
use std::ffi::OsString;

/// A translated command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program's name, and what the SDK reads.
    pub words: Vec<OsString>,
    /// Flags that were given, and that do nothing here.
    pub without_effect: Vec<String>,
}

/// Flags of Dynamo's that take a value and have no meaning here. Most are about the graphs, which this operator does not run.
/// Metrics are served beside the probes, and the leader's Lease is named after the operator. How long the Lease of a namespace
/// lasts, and how often it is renewed, is the same in all operators: how long a cluster-wide one waits before it writes rests on
/// how soon a restricted one notices that it must not. Leases of Dynamo's own operator count for as long as they say.
const VALUES: &str = "metrics-bind-address leader-election-id namespace-scope-lease-duration \
    namespace-scope-lease-renew-interval discovery-backend planner-cluster-role-name dgdr-profiling-cluster-role-name \
    mpi-run-ssh-secret-name mpi-run-ssh-secret-namespace natsAddr etcdAddr istio-virtual-service-gateway \
    ingress-controller-class-name ingress-controller-tls-secret-name ingress-host-suffix grove-termination-delay \
    model-express-url prometheus-endpoint zap-encoder zap-log-level zap-stacktrace-level zap-time-encoding";
/// Switches of the same sort.
const SWITCHES: &str = "metrics-secure enable-http2 virtual-service-supports-https zap-devel";

/// Words that are asked for by themselves, whatever the command line is.
const QUESTIONS: [&str; 6] = ["-h", "--help", "-help", "-V", "--version", "-version"];

/// Translates the words of a command line, the first of which is the program's name. `cluster_domain` is what
/// `KUBERNETES_CLUSTER_DOMAIN` says.
///
/// # Errors
/// With what is wrong, in the words of Go's flags.
pub fn translate(
    words: impl IntoIterator<Item = OsString>,
    cluster_domain: Option<OsString>,
) -> Result<CommandLine, String> {
    let mut words: VecDeque<OsString> = words.into_iter().collect();
    let first = words.get(1).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if !first.starts_with('-') || QUESTIONS.contains(&&*first) {
        return Ok(CommandLine { words: words.into(), without_effect: Vec::new() });
    }
    let mut line = Translation::default();
    let program = words.pop_front();
    while let Some(word) = words.pop_front() {
        line.take(&word, &mut words)?;
    }
    let cluster_domain = cluster_domain.filter(|domain| !domain.is_empty() && !line.has("--cluster-domain"));
    let mut flags = vec![program.unwrap_or_default(), "run".into()];
    // Dynamo's chart gives the switch where webhooks are on, and nothing where they are off; so is the election.
    for (flag, on) in [("--webhooks", line.webhooks), ("--leader-elect", line.leader_elect)] {
        if !line.has(flag) {
            flags.push(format!("{flag}={}", if on { "on" } else { "off" }).into());
        }
    }
    if let Some(version) = line.version.filter(|_| line.restricted) {
        flags.push(format!("--identity=namespace-restricted-operator-{version}").into());
    }
    flags.extend(line.flags);
    if let Some(domain) = cluster_domain {
        flags.extend(["--cluster-domain".into(), domain]);
    }
    Ok(CommandLine { words: flags, without_effect: line.without_effect })
}

#[derive(Default)]
struct Translation {
    flags: Vec<OsString>,
    without_effect: Vec<String>,
    webhooks: bool,
    leader_elect: bool,
    restricted: bool,
    version: Option<String>,
}

impl Translation {
    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|word| word.to_string_lossy().split('=').next() == Some(flag))
    }

    /// Takes a word, and from those behind it its value, where that is one of its own.
    fn take(&mut self, word: &OsString, behind: &mut VecDeque<OsString>) -> Result<(), String> {
        let text = word.to_string_lossy();
        let Some(flag) = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).filter(|flag| !flag.is_empty())
        else {
            // A value of a flag that the SDK knows, or what it refuses.
            self.flags.push(word.clone());
            return Ok(());
        };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value.to_owned())));
        let mut value_of = |value: Option<String>| {
            let next = || behind.pop_front().map(|next| next.to_string_lossy().into_owned());
            value.or_else(next).ok_or_else(|| format!("flag needs an argument: -{name}"))
        };
        match name {
            "enable-webhooks" => self.webhooks = switch(name, value.as_deref())?,
            // The SDK has a flag of this name, with other words.
            "leader-elect" if !matches!(value.as_deref(), Some("on" | "off")) => {
                self.leader_elect = switch(name, value.as_deref())?;
            }
            "restrictedNamespace" => {
                let namespace = value_of(value)?;
                self.restricted = !namespace.is_empty();
                self.flags.push(format!("--restrict-to-namespace={namespace}").into());
            }
            "leader-election-namespace" => {
                let namespace = value_of(value)?;
                let given = (!namespace.is_empty()).then(|| format!("--leader-election-namespace={namespace}").into());
                self.flags.extend(given);
            }
            "health-probe-bind-address" => {
                let address = address(&value_of(value)?);
                self.flags.push(format!("--health-bind={address}").into());
            }
            "operator-version" => self.version = Some(value_of(value)?),
            _ if SWITCHES.split(' ').any(|switch| switch == name) => {
                switch(name, value.as_deref())?;
                self.without_effect.push(format!("--{name}"));
            }
            _ if VALUES.split(' ').any(|valued| valued == name) => {
                value_of(value)?;
                self.without_effect.push(format!("--{name}"));
            }
            _ => self.flags.push(if name.len() > 1 { format!("--{flag}").into() } else { word.clone() }),
        }
        Ok(())
    }
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
fn switch(name: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(other) => Err(format!("invalid boolean value {other:?} for -{name}: parse error")),
    }
}

/// An address to listen on. Go takes one without a host for all of the machine's.
fn address(given: &str) -> String {
    match given.rsplit_once(':') {
        Some(("", port)) => format!("0.0.0.0:{port}"),
        Some(("localhost", port)) => format!("127.0.0.1:{port}"),
        _ => given.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(words: &str, cluster_domain: Option<&str>) -> Result<(String, String), String> {
        let words = words.split_whitespace().map(OsString::from);
        let CommandLine { words, without_effect } = translate(words, cluster_domain.map(OsString::from))?;
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        Ok((words.join(" "), without_effect.join(" ")))
    }

    /// Flags have the same effect in any order.
    #[test]
    fn a_command_line_of_dynamos_becomes_one_of_run() {
        let on = "--webhooks=on --leader-elect=off";
        let off = "--webhooks=off --leader-elect=off";
        for (words, common, expected, without_effect) in [
            ("--enable-webhooks=true", on, "", ""),
            ("-enable-webhooks", on, "", ""),
            ("-enable-webhooks=1 --leader-elect=off", on, "", ""),
            ("--enable-webhooks=false --leader-elect", "--webhooks=off --leader-elect=on", "", ""),
            ("--operator-version=0.8.0", off, "", ""),
            (
                "--restrictedNamespace=team-a --operator-version 0.8.0",
                off,
                "--restrict-to-namespace=team-a --identity=namespace-restricted-operator-0.8.0",
                "",
            ),
            ("-leader-election-namespace ops", off, "--leader-election-namespace=ops", ""),
            ("--leader-election-namespace=", off, "", ""),
            ("--health-probe-bind-address=:8081", off, "--health-bind=0.0.0.0:8081", ""),
            ("-health-probe-bind-address localhost:1", off, "--health-bind=127.0.0.1:1", ""),
            ("--webhooks=on -release=a --bind 0.0.0.0:1", on, "--release=a --bind 0.0.0.0:1", ""),
            ("--metrics-secure --natsAddr=a:4222 -etcdAddr a:2379", off, "", "--metrics-secure --natsAddr --etcdAddr"),
            ("--unknown x", off, "--unknown x", ""),
        ] {
            let (line, ignored) = translated(&format!("op {words}"), None).unwrap();
            let sorted = |line: &str| {
                let mut words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
                words.sort();
                words
            };
            assert_eq!(sorted(&line), sorted(&format!("op run {common} {expected}")), "{words}");
            assert!(line.starts_with("op run "), "{line}");
            assert_eq!(ignored, without_effect, "{words}");
        }
    }

    #[test]
    fn the_cluster_domain_comes_from_a_flag_or_the_environment() {
        let (line, _) = translated("op --enable-webhooks", Some("corp.local")).unwrap();
        assert!(line.ends_with(" --cluster-domain corp.local"), "{line}");
        for (words, domain) in [("op --enable-webhooks", ""), ("op --cluster-domain=other", "corp.local")] {
            assert!(!translated(words, Some(domain)).unwrap().0.contains("corp.local"), "{words}");
        }
    }

    #[test]
    fn a_command_and_a_question_are_left_as_they_are() {
        for words in ["op", "op run --webhooks off", "op generate crds", "op --help", "op -V"] {
            assert_eq!(translated(words, Some("corp.local")), Ok((words.to_owned(), String::new())));
        }
    }

    #[test]
    fn what_go_refuses_is_refused_in_its_words() {
        for (words, said) in [
            ("op --enable-webhooks=maybe", "invalid boolean value \"maybe\" for -enable-webhooks: parse error"),
            ("op --restrictedNamespace", "flag needs an argument: -restrictedNamespace"),
            ("op --metrics-secure=2", "invalid boolean value \"2\" for -metrics-secure: parse error"),
            ("op --discovery-backend", "flag needs an argument: -discovery-backend"),
        ] {
            assert_eq!(translated(words, None), Err(said.to_owned()), "{words}");
        }
    }
}
