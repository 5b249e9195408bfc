//! The table of `doctor`'s checks, from its catalogue.

use std::fmt::Write as _;

use portcullis::doctor::CATALOGUE;

const BEGIN: &str = "<!-- The checks: `make generate` writes them. -->\n";
const END: &str = "<!-- The end of the checks. -->\n";

/// The page about troubles, with the table as it is now in place of the one that `page` has.
pub fn troubleshoot(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", table()))
}

fn table() -> String {
    let mut table = "| check | passes when |\n|---|---|\n".to_owned();
    for (symptom, checks) in CATALOGUE {
        // Writing to a String cannot fail.
        let _ = writeln!(table, "| | **{symptom}** |");
        for (id, what) in *checks {
            let _ = writeln!(table, "| {id} | {what} |");
        }
    }
    table
}
