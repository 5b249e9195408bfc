//! What people are told.

use std::io::Write as _;

use super::session::Opened;
use crate::connect;
use portcullis_client::plain;

/// One line on standard output. That nobody reads it is no reason to end.
pub(super) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", plain(line));
}

impl Opened {
    /// What is served, where, until when, and how it ends.
    pub(super) fn tell(&self, connection: &connect::Cluster, controllers: Option<&str>, stands_back: bool) {
        self.lines(connection, controllers, stands_back).iter().for_each(|line| say(line));
    }

    fn lines(&self, connection: &connect::Cluster, controllers: Option<&str>, stands_back: bool) -> Vec<String> {
        let context = if connection.context.is_empty() { "this cluster" } else { connection.context.as_str() };
        let mut lines = vec![
            format!("Webhooks of {context} ({}) are served from this machine.", connection.url),
            format!("  called at  {} ({}), listening on {}", self.url, self.candidate.why, self.listening),
        ];
        for (configuration, entries) in &self.configurations {
            lines.push(format!("  {configuration}"));
            lines.extend(entries.iter().map(|entry| format!("    {}  {}", entry.name, entry.path)));
        }
        lines.extend(self.policies.iter().map(|[policy, _]| format!("  {policy} and its binding")));
        for (crd, path) in &self.converting {
            lines.push(format!("  CustomResourceDefinition {crd}\n    conversion  {path}"));
        }
        lines.push(match self.reach.namespaces.as_slice() {
            [] => "  namespaces  all; --only-namespace NS leaves the others alone".to_owned(),
            some => format!("  namespaces  {} only", some.join(", ")),
        });
        if stands_back {
            lines.push(
                "              those of restricted operators are left to them; --restrict-to-namespace NS serves one"
                    .to_owned(),
            );
        }
        lines.push(if self.reach.fail {
            "  failures    as registered: while this machine does not answer, the API server refuses the requests"
                .to_owned()
        } else {
            "  failures    ignored: while this machine does not answer, requests pass unvalidated; --fail refuses them"
                .to_owned()
        });
        lines.extend(controllers.map(|controllers| format!("  controllers {controllers}")));
        if let [_, ..] = self.reach.namespaces.as_slice()
            && controllers.is_some()
            && stands_back
        {
            lines.push(
                "Note: no controller reconciles objects in other namespaces while the controllers of this session lead."
                    .to_owned(),
            );
        }
        for crd in &self.converting {
            lines.push(format!(
                "Note: objects of {} cannot be read in other versions while this machine does not answer; no policy helps.",
                crd.0
            ));
        }
        for crd in &self.not_converting {
            lines.push(format!("Note: {crd} keeps its conversion: that is the same for all namespaces."));
        }
        if !self.policies.is_empty() {
            lines.push(
                "Note: the API server evaluates CEL rules itself: they hold whether this machine answers or not."
                    .to_owned(),
            );
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
