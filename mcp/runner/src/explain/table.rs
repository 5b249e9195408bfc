//! Answers as a table for people.

use std::fmt::Write as _;

use mcp_gate::explain::{Answer, Reason, ToolAnswer, Unknown, Verdict};

use super::Explained;
use crate::text::is_invisible;

const HEAD: [&str; 4] = ["TOOL", "SHOWN", "MAY CALL", "BECAUSE"];

pub(super) fn table(explained: &Explained) -> String {
    let rows: Vec<_> = [HEAD.map(str::to_owned)].into_iter().chain(explained.tools.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let mut text = match &explained.caller {
        None => "caller: nobody has logged in\n".to_owned(),
        Some(caller) if caller.logged_in => format!("caller: {}\n", printable(&caller.subject)),
        Some(caller) => format!("caller: the local user {}\n", printable(&caller.subject)),
    };
    for [tool, shown, call, because] in &rows {
        let [first, second, third] = widths;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{tool:first$}  {shown:second$}  {call:third$}  {because}");
    }
    if explained.has_more_pages {
        text.push_str("the list goes on: these are the tools of one page\n");
    }
    text
}

fn row(answer: &ToolAnswer) -> [String; 4] {
    let mut because = reasons(&answer.call);
    let shown = &answer.shown;
    if shown.answer != answer.call.answer && !shown.because.is_empty() {
        because = format!("{because}; shown: {}", reasons(shown));
    }
    let renamed = if answer.name == answer.server_name { String::new() } else { format!(" ({})", answer.server_name) };
    [printable(&format!("{}{renamed}", answer.name)), word(shown), word(&answer.call), printable(&because)]
}

fn word(verdict: &Verdict) -> String {
    match verdict.answer {
        Answer::Yes => "yes".to_owned(),
        Answer::No => "no".to_owned(),
        Answer::DependsOn => {
            let mut on: Vec<String> = verdict.because.iter().filter_map(unknown).collect();
            on.dedup();
            printable(&format!("depends on {}", on.join(", ")))
        }
    }
}

fn unknown(reason: &Reason) -> Option<String> {
    Some(match reason.depends_on? {
        Unknown::Arguments => "arguments".to_owned(),
        Unknown::Webhook => format!("webhook {}", reason.name.as_deref().unwrap_or_default()),
        Unknown::Pdp => "the decision point".to_owned(),
        Unknown::Credential => "the credential".to_owned(),
    })
}

fn reasons(verdict: &Verdict) -> String {
    if verdict.because.is_empty() {
        return "no guard decides about it".to_owned();
    }
    let said = |reason: &Reason| match &reason.name {
        Some(name) => format!("{} {name} {}", reason.guard, reason.says),
        None => format!("{}: {}", reason.guard, reason.says),
    };
    verdict.because.iter().map(said).collect::<Vec<_>>().join("; ")
}

/// A text of somebody else's, without what a terminal would take for commands, or hide.
fn printable(text: &str) -> String {
    let shown = |c: char| if is_invisible(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}
