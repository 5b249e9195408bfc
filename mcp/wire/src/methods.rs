//! The methods of MCP, and spellings that a lenient server would take for one of them.

use crate::guard::{Ambiguity, same_name};

/// The methods of both eras, in either direction, with those of their published extensions.
const KNOWN: [&str; 39] = [
    "completion/complete",
    "elicitation/create",
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/elicitation/complete",
    "notifications/initialized",
    "notifications/message",
    "notifications/progress",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/roots/list_changed",
    "notifications/subscriptions/acknowledged",
    "notifications/tasks",
    "notifications/tasks/status",
    "notifications/tools/list_changed",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/directory/read",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "roots/list",
    "sampling/createMessage",
    "server/discover",
    "skills/get",
    "skills/list",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// Whether it is a method of MCP.
pub fn is_method(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// Refuses a method that is none of MCP's and differs from one only in case or blanks.
pub(crate) fn check_method(method: &str) -> Result<(), Ambiguity> {
    if is_method(method) {
        return Ok(());
    }
    let bare: String = method.chars().filter(|c| !is_blank(*c)).collect();
    match KNOWN.iter().find(|known| same_name(known, &bare)) {
        Some(known) => Err(Ambiguity::Method(method.chars().take(64).collect(), known)),
        None => Ok(()),
    }
}

/// Whether some reader trims the character, or shows nothing for it.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_only_looks_like_a_known_one_is_refused() {
        for (method, known) in [
            ("Tools/Call", Some("tools/call")),
            ("tools/call ", Some("tools/call")),
            ("\ttools/call", Some("tools/call")),
            ("tools /call", Some("tools/call")),
            ("tools/call\0", Some("tools/call")),
            ("tools/call\u{a0}", Some("tools/call")),
            ("tools/call\u{200b}", Some("tools/call")),
            ("\u{feff}tools/call", Some("tools/call")),
            ("tool\u{17f}/call", Some("tools/call")),
            ("tas\u{212a}s/get", Some("tasks/get")),
            ("INITIALIZE", Some("initialize")),
            ("logging/setlevel", Some("logging/setLevel")),
            ("Server/Discover", Some("server/discover")),
            ("subscriptions/listen\n", Some("subscriptions/listen")),
            ("notifications/Initialized", Some("notifications/initialized")),
            (" notifications/cancelled", Some("notifications/cancelled")),
            ("tools/calls", None),
            ("x/Tools/Call", None),
            ("tools-call", None),
            ("Own/Method of a server", None),
            ("größe/lesen", None),
        ] {
            let expected = known.map_or(Ok(()), |known| Err(Ambiguity::Method(method.to_owned(), known)));
            assert_eq!(check_method(method), expected, "{method:?}");
        }
        for known in KNOWN {
            assert_eq!(check_method(known), Ok(()));
        }
    }
}
