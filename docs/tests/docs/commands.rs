//! The command lines that the pages show are such as the operator's binary takes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Command;
use portcullis::operator::Operator;

/// The binaries of the pages: all of them have the same commands.
const BINARIES: [&str; 4] = ["my-operator ", "backup-operator ", "entity-operator ", "cargo run -- "];

/// Every page of the book, and the README of the example, by its path.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("../examples/entity-operator/README.md"), root.join("../README.md")];
    for folder in ["", "tutorial", "how-to", "explanation", "reference"] {
        let files = std::fs::read_dir(root.join("src").join(folder)).unwrap();
        pages.extend(files.map(|file| file.unwrap().path()));
    }
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.into_iter().map(|page| (page.clone(), std::fs::read_to_string(page).unwrap())).collect()
}

/// The words behind the binary's name of each command that a page shows, up to a pipe or a comment.
fn shown(page: &str) -> Vec<Vec<String>> {
    let joined = page.replace("\\\n", " ");
    let mut fenced = false;
    let mut found = Vec::new();
    for line in joined.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let Some(line) = line.trim_start().strip_prefix("$ ").filter(|_| fenced) else { continue };
        for command in line.split(" && ") {
            let Some(rest) = BINARIES.iter().find_map(|binary| command.trim_start().strip_prefix(binary)) else {
                continue;
            };
            let words = rest.split_whitespace().take_while(|word| !["|", "#", ">", "&"].contains(word));
            found.push(words.map(str::to_owned).collect());
        }
    }
    found
}

fn command() -> Command {
    let operator = Operator::new("my-operator");
    let mut command = operator.command();
    command.build();
    command
}

#[test]
fn every_command_line_that_a_page_shows_is_one_that_is_taken() {
    let mut lines = 0;
    for (page, text) in pages() {
        for words in shown(&text) {
            // A placeholder becomes a value.
            let words = words.iter().map(|word| if word == "…" { "x" } else { word.as_str() });
            let line: Vec<&str> = ["my-operator"].into_iter().chain(words).collect();
            let taken = command().try_get_matches_from(&line);
            assert!(taken.is_ok(), "{} shows {}:\n{}", page.display(), line.join(" "), taken.unwrap_err());
            lines += 1;
        }
    }
    assert!(lines > 20, "{lines} command lines are shown; have the pages another form?");
}

/// In the text as well: a flag in code is one of ours, or of a program that is named beside it.
#[test]
fn every_flag_that_a_page_names_exists() {
    let command = command();
    let flags = |command: &Command| -> Vec<String> {
        command.get_arguments().filter_map(|argument| Some(format!("--{}", argument.get_long()?))).collect()
    };
    let mut ours: BTreeSet<String> = command.get_subcommands().flat_map(flags).collect();
    ours.extend(command.get_subcommands().flat_map(Command::get_subcommands).flat_map(flags));
    // mcp-runner's own tests compare its page.
    for (page, text) in pages().into_iter().filter(|(page, _)| !page.ends_with("reference/runner.md")) {
        for code in text.split("```").step_by(2).flat_map(|outside| outside.split('`').skip(1).step_by(2)) {
            if let Some(flag) = code.split([' ', '=']).next().filter(|word| word.starts_with("--")) {
                assert!(ours.contains(flag), "{} names {flag}, which no command has", page.display());
            }
        }
    }
}
