//! The names of members: which of them are the same, and which no type here has. Those have no effect, and one may be a misspelt guard.

use std::cell::{Cell, RefCell};

/// The most members that are listed.
const MOST: usize = 16;
/// The most characters of a path.
const LONGEST: usize = 100;

/// Members that ToolHive's documents have and no proxy of this version acts on, without the `cached_` ones of `remote_auth_config`.
const UNUSED: [&str; 17] = [
    "allow_docker_gateway",
    "embedded_auth_server_config",
    "embedded_auth_server_issuer",
    "env_file_dir",
    "group",
    "ignore_config",
    "isolate_network",
    "k8s_pod_template_patch",
    "publish",
    "registry_api_url",
    "registry_server_name",
    "registry_url",
    "remote_auth_config.env_vars",
    "remote_auth_config.headers",
    "runtime_config",
    "secrets",
    "upstream_swap_config",
];

/// Members that stand below `portcullis` of the document.
const OF_DOCUMENT: [&str; 7] = [
    "actor_token_file",
    "allow_private_endpoint",
    "mcp_paths",
    "open_paths",
    "rate_limits_fail_closed",
    "shadow_policies",
    "trusted_proxies",
];
/// Members that stand below `portcullis` of an entry of a webhook.
const OF_WEBHOOK: [&str; 2] = ["match", "mode"];

/// The part of two names that Go's decoder compares, without underscores. The names that are asked for are ASCII: besides their capitals, only
/// U+017F and U+212A are taken for letters of theirs.
pub(crate) fn fold(key: &str) -> String {
    let fold = |c: char| match c {
        '\u{17F}' => 's',
        '\u{212A}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().filter(|c| *c != '_').map(fold).collect()
}

/// The unknown members that a reading has met.
#[derive(Default)]
pub(crate) struct Unknown {
    listed: RefCell<Vec<String>>,
    more: Cell<usize>,
}

impl Unknown {
    /// Notes the member `name` at `path`, where the members `known` are.
    pub(crate) fn note(&self, path: &str, name: &str, known: &[&str]) {
        let (place, folded) = (fold(path), fold(name));
        if place.contains("remoteauthconfig.cached") || UNUSED.iter().any(|unused| place == fold(unused)) {
            return;
        }
        if self.listed.borrow().len() == MOST {
            return self.more.set(self.more.get() + 1);
        }
        let shown: String = path.escape_debug().take(LONGEST).collect();
        let in_portcullis = if path == name { &OF_DOCUMENT[..] } else { &OF_WEBHOOK };
        let hint = meant(&folded, known, in_portcullis).map(|meant| format!(" (did you mean {meant}?)"));
        self.listed.borrow_mut().push(shown + &hint.unwrap_or_default());
    }

    /// The paths of the members, each with the member that was meant, and how many more there are.
    pub(crate) fn into_list(self) -> Vec<String> {
        let more = Some(self.more.get()).filter(|more| *more > 0).map(|more| format!("{more} more"));
        self.listed.into_inner().into_iter().chain(more).collect()
    }
}

/// The path of a member or an item below `path`. A long one is cut, so that it costs little in a deep document.
pub(crate) fn below(path: &str, step: &str) -> String {
    let dot = if path.is_empty() || step.starts_with('[') { "" } else { "." };
    format!("{path:.LONGEST$}{dot}{step:.LONGEST$}")
}

/// The known member that an unknown one looks like: it differs in one letter or two, or is one of `in_portcullis` beside it.
fn meant(folded: &str, known: &[&str], in_portcullis: &[&str]) -> Option<String> {
    if known.contains(&"portcullis")
        && let Some(name) = in_portcullis.iter().find(|name| fold(name) == folded)
    {
        return Some(format!("portcullis.{name}"));
    }
    let most = (folded.len() / 3).min(2);
    // A name that is longer than every known one is near to none, and costs much.
    let near = known.iter().filter(|_| folded.len() <= LONGEST).map(|known| (distance(known, folded), known));
    near.filter(|(distance, _)| *distance <= most).min().map(|(_, known)| (*known).to_owned())
}

fn distance(known: &str, folded: &str) -> usize {
    strsim::damerau_levenshtein(&fold(known), folded)
}
