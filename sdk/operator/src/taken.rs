//! Names of arguments that two have: an operator's own arguments beside those of the commands.

use std::collections::BTreeMap;

use clap::{Arg, Command};

/// An argument of the operator's own that has a name which a command has already. Rename it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operator's own argument {own} has the {name} of {other} of '{command}': {fix}")]
pub(super) struct TakenName {
    own: String,
    name: String,
    other: String,
    command: String,
    fix: &'static str,
}

/// What no two arguments of a command have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Flag,
    Id,
}

impl Sort {
    /// How one gets another.
    fn fix(self) -> &'static str {
        match self {
            Self::Flag => "give it another one, as in #[arg(long = \"…\")]",
            Self::Id => "rename its field (or struct, for a group), or say #[arg(id = \"…\")]",
        }
    }
}

/// That the operator's own arguments take no name from an argument of any command. Clap looks for that in debug builds
/// only, and takes one of the two for the other in a release.
pub(super) fn check(command: &Command) -> Result<(), TakenName> {
    command.get_subcommands().try_for_each(|command| check_command(command, command.get_name(), &[]))
}

fn check_command(command: &Command, path: &str, global: &[&Arg]) -> Result<(), TakenName> {
    let mut names: BTreeMap<(Sort, String), String> = BTreeMap::new();
    let mut claim =
        |sort: Sort, name: &str, holder: &str| match names.insert((sort, name.to_owned()), holder.to_owned()) {
            None => Ok(()),
            Some(other) => Err(TakenName {
                own: holder.to_owned(),
                name: if sort == Sort::Id { format!("id {name}") } else { format!("flag {name}") },
                other,
                command: path.to_owned(),
                fix: sort.fix(),
            }),
        };
    // Clap adds it to every command.
    let help = Arg::new("help").short('h').long("help");
    // What the command has itself is not added to it once more.
    let inherited = global.iter().copied().filter(|arg| !command.get_arguments().any(|it| it.get_id() == arg.get_id()));
    // The operator's own are the last of a command, but for those of the command above it.
    for arg in [&help].into_iter().chain(command.get_arguments()).chain(inherited) {
        let holder = told(arg);
        claim(Sort::Id, arg.get_id().as_str(), &holder)?;
        for flag in flags(arg) {
            claim(Sort::Flag, &flag, &holder)?;
        }
    }
    for group in command.get_groups() {
        let id = group.get_id().as_str();
        claim(Sort::Id, id, &format!("group {id}"))?;
    }
    let global: Vec<&Arg> =
        global.iter().copied().chain(command.get_arguments().filter(|arg| arg.is_global_set())).collect();
    command
        .get_subcommands()
        .try_for_each(|inner| check_command(inner, &format!("{path} {}", inner.get_name()), &global))
}

/// Everything by which it is given on a command line.
fn flags(arg: &Arg) -> Vec<String> {
    let long = arg.get_long().into_iter().chain(arg.get_all_aliases().into_iter().flatten());
    let short = arg.get_short().into_iter().chain(arg.get_all_short_aliases().into_iter().flatten());
    long.map(|long| format!("--{long}")).chain(short.map(|short| format!("-{short}"))).collect()
}

fn told(arg: &Arg) -> String {
    flags(arg).into_iter().next().unwrap_or_else(|| format!("<{}>", arg.get_id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoArgs, Operator};

    #[allow(dead_code, reason = "what is parsed into them is not asked for")]
    mod own {
        #[derive(clap::Args)]
        pub(super) struct Timeout {
            #[arg(long)]
            timeout: Option<u8>,
        }

        #[derive(clap::Args)]
        pub(super) struct TimeLimit {
            #[arg(long = "time-limit", alias = "timeout")]
            time_limit: Option<u8>,
        }

        #[derive(clap::Args)]
        pub(super) struct Namespace {
            #[arg(long = "ns")]
            namespace: Option<String>,
        }

        #[derive(clap::Args)]
        pub(super) struct Peer {
            #[arg(short = 'h', long = "peer")]
            peer: Option<String>,
        }

        #[derive(clap::Args)]
        pub(super) struct What {
            what: Option<String>,
        }

        #[derive(clap::Args)]
        pub(super) struct File {
            #[arg(long = "file", short, global = true)]
            file: Option<String>,
        }

        #[derive(clap::Args)]
        pub(super) struct RunFlags {
            #[arg(long)]
            depth: Option<u8>,
        }

        #[derive(clap::Args)]
        pub(super) struct Free {
            #[arg(long, short = 'n', env = "POD_NAMESPACE")]
            name: Option<String>,
            #[arg(long, global = true)]
            everywhere: bool,
            rest: Vec<String>,
        }
    }

    fn said<A: clap::Args>() -> Option<String> {
        check(&Operator::<A>::named("op").command()).err().map(|taken| taken.to_string())
    }

    // Clap's own assertions are in debug builds alone: an own `--timeout` ended `certs ensure` of a release with a panic.
    #[test]
    fn an_own_argument_whose_name_a_command_has_is_an_error_with_both_in_any_build() {
        let flag = "give it another one, as in #[arg(long = \"…\")]";
        let id = "rename its field (or struct, for a group), or say #[arg(id = \"…\")]";
        let taken = |own: &str, name: &str, other: &str, command: &str, fix: &str| {
            Some(format!("the operator's own argument {own} has the {name} of {other} of '{command}': {fix}"))
        };
        assert_eq!(said::<own::Timeout>(), taken("--timeout", "id timeout", "--timeout", "certs ensure", id));
        assert_eq!(
            said::<own::TimeLimit>(),
            taken("--time-limit", "flag --timeout", "--timeout", "certs ensure", flag)
        );
        assert_eq!(said::<own::Namespace>(), taken("--ns", "id namespace", "--namespace", "run", id));
        assert_eq!(said::<own::Peer>(), taken("--peer", "flag -h", "--help", "run", flag));
        assert_eq!(said::<own::What>(), taken("<what>", "id what", "<what>", "generate", id));
        assert_eq!(said::<own::File>(), taken("--file", "flag -f", "--filename", "doctor explain", flag));
        assert_eq!(said::<own::RunFlags>(), taken("group RunFlags", "id RunFlags", "group RunFlags", "run", id));
        assert_eq!(said::<own::Free>(), None);
        assert_eq!(said::<NoArgs>(), None);
    }
}
