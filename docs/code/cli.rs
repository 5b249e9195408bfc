//! The reference of the command line, from the definitions that parse it.

use std::fmt::Write as _;

use clap::{Arg, Command};
use portcullis::operator::Operator;

const HEAD: &str = "\
# The command line

`Operator::main` gives your binary these commands: `run`, `generate` and `certs` with the feature `operator` of `portcullis`, and `dev`, `doctor` and
`migrate-storage` with the features `dev`, `doctor` and `migrate`. [Your own arguments](../how-to/flags.md) (a `clap::Args` struct, given to `setup`) are added to
all but `migrate-storage`. This page is generated from the definitions of the flags: `make generate` writes it.

**The flags of the installation are the same in every command**: the same flags give the same names.
";

const FOOT: &str = "
## Exit codes

0 when all is well, 1 with one line on standard error when it is not, 2 for a command line that does not parse. `doctor` ends with 1 when a
check failed, `generate --check` when a file differs.
";

/// Flags that several commands have. They are described once.
const COMMON: &str = "Flags of the installation";

/// The page, as Markdown.
pub fn reference() -> String {
    let operator = Operator::new("my-operator");
    let mut command = operator.command();
    command.build();
    let commands: Vec<&Command> = command.get_subcommands().filter(|command| command.get_name() != "help").collect();
    let everywhere = common(&commands);
    let mut page = HEAD.to_owned();
    let _ = write!(page, "\n## {COMMON}\n\n{}", table(&everywhere));
    for command in commands {
        describe(&mut page, command, "##", command.get_name(), &everywhere);
    }
    page + FOOT
}

/// The flags that every command which has to do with an installation has, as the first of them has them.
fn common<'a>(commands: &[&'a Command]) -> Vec<&'a Arg> {
    let about_installations: Vec<_> =
        commands.iter().filter(|command| flags(command).iter().any(|flag| flag.get_id() == "release")).collect();
    let Some((first, others)) = about_installations.split_first() else { return Vec::new() };
    let shared = |flag: &&Arg| others.iter().all(|other| flags(other).iter().any(|theirs| same(flag, theirs)));
    flags(first).into_iter().filter(shared).collect()
}

fn describe(page: &mut String, command: &Command, level: &str, path: &str, described: &[&Arg]) {
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    // Writing to a String cannot fail.
    // The first line is a heading's worth, and ends without a full stop as clap wants it.
    let about = about.split_once('\n').map_or(format!("{about}."), |(first, rest)| format!("{first}.\n{rest}"));
    let _ = write!(page, "\n{level} {path}\n\n{}\n", escape(&about));
    let own: Vec<&Arg> = positionals(command).chain(flags(command)).collect();
    let (known, own): (Vec<_>, Vec<_>) = own.into_iter().partition(|flag| described.iter().any(|it| same(it, flag)));
    if !own.is_empty() {
        let _ = write!(page, "\n{}", table(&own));
    }
    if !known.is_empty() {
        let anchor = COMMON.to_lowercase().replace(' ', "-");
        let _ = write!(page, "\nAnd the [flags of the installation](#{anchor}).\n");
    }
    let described = [described, &own].concat();
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        describe(page, inner, &format!("{level}#"), &format!("{path} {}", inner.get_name()), &described);
    }
}

fn flags(command: &Command) -> Vec<&Arg> {
    let of_clap = |flag: &&Arg| ["help", "version"].contains(&flag.get_id().as_str());
    command
        .get_opts()
        .chain(command.get_arguments().filter(|flag| is_switch(flag)))
        .filter(|flag| !of_clap(flag))
        .filter(|flag| !flag.is_hide_set())
        .collect()
}

fn positionals(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_positionals().filter(|argument| !argument.is_hide_set())
}

fn is_switch(flag: &Arg) -> bool {
    !flag.is_positional() && !flag.get_action().takes_values()
}

/// Whether two commands mean the same by a flag.
fn same(one: &Arg, other: &Arg) -> bool {
    let text = |flag: &Arg| flag.get_help().map(ToString::to_string);
    one.get_id() == other.get_id() && text(one) == text(other)
}

fn table(arguments: &[&Arg]) -> String {
    let mut table = "| flag | default | what |\n|---|---|---|\n".to_owned();
    for argument in arguments {
        let (help, default) = explained(argument);
        let _ = writeln!(table, "| {} | {} | {} |", name(argument), default, help);
    }
    table
}

fn name(argument: &Arg) -> String {
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let mut names: Vec<String> = short.into_iter().chain(long).collect();
    let value = if argument.get_action().takes_values() { values(argument) } else { String::new() };
    if names.is_empty() {
        return format!("`{}`", value.replace('|', "\\|"));
    }
    if let (Some(last), false) = (names.last_mut(), value.is_empty()) {
        *last = format!("{last} {value}");
    }
    let mut said = names.iter().map(|name| format!("`{}`", name.replace('|', "\\|"))).collect::<Vec<_>>().join(", ");
    if let Some(variable) = argument.get_env() {
        let _ = write!(said, " (`{}`)", variable.to_string_lossy());
    }
    said
}

/// The values of a flag: the possible ones, or the name of its value.
fn values(argument: &Arg) -> String {
    let words = argument.get_possible_values();
    if !words.is_empty() {
        return words.iter().map(clap::builder::PossibleValue::get_name).collect::<Vec<_>>().join("|");
    }
    let names = argument.get_value_names().unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// The help, and the default that clap knows or that the help ends with.
fn explained(argument: &Arg) -> (String, String) {
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let given: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let (help, stated) = match help.split_once(" [default: ") {
        Some((help, default)) => (help.to_owned(), default.trim_end_matches(']').to_owned()),
        None => (help, String::new()),
    };
    let stated = if stated.contains('<') { format!("`{stated}`") } else { stated };
    let default = if given.is_empty() || is_switch(argument) {
        stated.replace('|', "\\|")
    } else {
        format!("`{}`", given.join(" "))
    };
    let words = argument.get_possible_values();
    let words: Vec<_> =
        words.iter().filter_map(|word| Some(format!("`{}`: {}", word.get_name(), word.get_help()?))).collect();
    let help =
        if words.is_empty() { escape(&help) } else { format!("{}. {}", escape(&help), escape(&words.join("; "))) };
    (help, default)
}

/// Words in angle brackets would be taken for HTML.
fn escape(text: &str) -> String {
    text.replace('<', "&lt;").replace('|', "\\|")
}
