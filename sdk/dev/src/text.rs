//! Words for people.

use std::io::Write as _;

use http::Uri;

use super::session::Opened;
use portcullis_client::escape_control;

/// Prints a line on standard output. A closed pipe is no reason to end.
pub(super) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", escape_control(line));
}

impl Opened {
    /// Says which webhooks are served, at which address, until when, and how that ends.
    pub(super) fn print(&self, context: &str, url: &Uri) {
        self.lines(context, url).iter().for_each(|line| say(line));
    }

    fn lines(&self, context: &str, url: &Uri) -> Vec<String> {
        let context = if context.is_empty() { "this cluster" } else { context };
        let mut lines = vec![
            format!("Webhooks of {context} ({url}) are served from this machine."),
            format!("  called at  {} ({}), listening on {}", self.url, self.candidate.why, self.listening),
        ];
        for (configuration, entries) in &self.configurations {
            lines.push(format!("  {configuration}"));
            lines.extend(entries.iter().map(|entry| format!("    {}  {}", entry.name, entry.path)));
        }
        lines.push(match self.reach.namespaces.as_slice() {
            [] => "  namespaces  all; --only-namespace NS leaves the others alone".to_owned(),
            some => format!("  namespaces  {} only", some.join(", ")),
        });
        lines.push(if self.reach.fail {
            "  failures    as registered: while this machine does not answer, the API server refuses the requests"
                .to_owned()
        } else {
            "  failures    ignored: while this machine does not answer, requests pass unvalidated; --fail refuses them"
                .to_owned()
        });
        for crd in &self.not_converting {
            lines.push(format!(
                "Note: {crd} keeps its conversion; conversions are tried on the control plane of tests."
            ));
        }
        for name in &self.without_rules {
            lines.push(format!("Note: the CEL rules of {name} are not served from here; apply 'generate policies'."));
        }
        for name in &self.left_out {
            lines.push(format!("Note: {name} is left out: its kinds are in no namespace."));
        }
        for configuration in &self.installed {
            lines.push(format!("Note: the installed operator's {configuration} is called too, as before."));
        }
        lines.push(format!(
            "Ends at {}, or with Ctrl-C, and then all of it is removed from the cluster again.",
            self.expires.strftime("%FT%TZ")
        ));
        lines
    }
}
