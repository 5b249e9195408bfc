//! Messages of API server errors, for people.

use std::error::Error;
use std::iter::successors;

use kube::core::Status;

use crate::escape_control;

/// Returns the message of an error. For a response of the API server that is the `message` of its status, where kube's
/// `Display` prints the whole status, and errors of kube's watches repeat it. Several causes are sorted: the API server
/// lists those of a map in random order.
pub fn error_message(error: &(dyn Error + 'static)) -> String {
    fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
        error.downcast_ref().or_else(|| error.downcast_ref::<Box<T>>().map(|boxed| &**boxed))
    }
    let status = match find::<kube::Error>(error) {
        Some(kube::Error::Service(cause)) => return error_message(&**cause),
        Some(kube::Error::Api(status)) => Some(&**status),
        _ => find::<Status>(error),
    };
    match status {
        Some(status) if status.message.is_empty() => {
            format!("HTTP {} {}", status.code, status.reason).trim_end().to_owned()
        }
        Some(status) => in_order(status).unwrap_or_else(|| status.message.clone()),
        None => with_sentence_of_cause(error),
    }
}

/// The message of a status with a list of causes, in the order of the alphabet.
fn in_order(status: &Status) -> Option<String> {
    let causes = status.details.as_ref().map(|details| &details.causes).filter(|causes| causes.len() > 1)?;
    let (what, _) = status.message.split_once(": [").filter(|(_, list)| list.ends_with(']'))?;
    let mut causes: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    causes.sort();
    causes.dedup();
    Some(format!("{what}: [{}]", causes.join(", ")))
}

/// The text of an error that may contain the text of its cause, with the cause's own sentence instead.
fn with_sentence_of_cause(error: &(dyn Error + 'static)) -> String {
    let text = error.to_string();
    let Some(cause) = error.source() else { return text };
    let (whole, sentence) = (cause.to_string(), error_message(cause));
    if whole.is_empty() || whole == sentence { text } else { text.replace(&whole, &sentence) }
}

/// An error and its causes. The text of a cause is left out where the error's own text contains it.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error_message(error);
    for cause in successors(error.source(), |cause| (*cause).source()).map(error_message) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    escape_control(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};
    use kube::runtime::watcher;

    use super::*;

    #[test]
    fn an_api_error_shows_its_message_or_else_its_code() {
        let gone = Status::failure("namespaces \"a\" not found", "NotFound").with_code(404);
        let bare = Status::failure("", "").with_code(502);
        for (status, expected) in [(gone, "namespaces \"a\" not found"), (bare, "HTTP 502")] {
            let boxed: Box<dyn Error> = Box::new(kube::Error::Api(status.clone().boxed()));
            assert_eq!(error_message(&*boxed), expected);
            assert_eq!(error_message(&Box::new(kube::Error::Api(status.clone().boxed()))), expected);
            assert_eq!(error_message(&status), expected);
        }
        let silent = kube::Error::Service("the API server at https://a does not answer".into());
        assert_eq!(error_message(&silent), "the API server at https://a does not answer");
        assert_eq!(error_message(&std::io::Error::other("no such file")), "no such file");
    }

    #[test]
    fn causes_are_said_in_one_order_whatever_order_they_come_in() {
        let [a, b] = ["a", "b"].map(|key| StatusCause {
            field: "metadata.labels".to_owned(),
            message: format!("Invalid value: {key:?}"),
            reason: "FieldValueInvalid".to_owned(),
        });
        for causes in [vec![a.clone(), b.clone()], vec![b.clone(), a.clone(), b.clone()]] {
            let list: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
            let mut status = Status::failure(&format!("Pod \"p\" is invalid: [{}]", list.join(", ")), "Invalid");
            let none = String::new;
            let (name, group, kind, uid) = (none(), none(), none(), none());
            status.details = Some(StatusDetails { name, group, kind, uid, causes, retry_after_seconds: 0 });
            let said =
                r#"Pod "p" is invalid: [metadata.labels: Invalid value: "a", metadata.labels: Invalid value: "b"]"#;
            assert_eq!(error_message(&status), said);
        }
    }

    #[test]
    fn of_a_watch_that_fails_the_sentence_of_the_api_server_is_said() {
        let forbidden = || Status::failure("secrets is forbidden: no access", "Forbidden").with_code(403).boxed();
        let unreachable = kube::Error::Service("https://a does not answer".into());
        for (error, expected) in [
            (
                watcher::Error::InitialListFailed(kube::Error::Api(forbidden())),
                "failed to perform initial object list: secrets is forbidden: no access",
            ),
            (
                watcher::Error::WatchStartFailed(kube::Error::Api(forbidden())),
                "failed to start watching object: secrets is forbidden: no access",
            ),
            (
                watcher::Error::WatchError(forbidden()),
                "error returned by apiserver during watch: secrets is forbidden: no access",
            ),
            (watcher::Error::WatchFailed(unreachable), "watch stream failed: https://a does not answer"),
        ] {
            assert_eq!(error_message(&error), expected);
            assert_eq!(error_chain(&error), expected);
        }
    }
}
