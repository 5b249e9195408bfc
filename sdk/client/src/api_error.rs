//! Errors of the API server, for people.

use std::error::Error;

/// Returns the message of an error. For a response of the API server that is the `message` of its status, where kube's
/// `Display` prints the whole status.
pub fn own_sentence(error: &(dyn Error + 'static)) -> String {
    fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
        error.downcast_ref().or_else(|| error.downcast_ref::<Box<T>>().map(|boxed| &**boxed))
    }
    let error = match find::<kube::Error>(error) {
        Some(kube::Error::Service(cause)) => &**cause,
        _ => error,
    };
    let status = match find::<kube::Error>(error) {
        Some(kube::Error::Api(status)) => Some(&**status),
        _ => find::<kube::core::Status>(error),
    };
    match status {
        Some(status) if status.message.is_empty() => {
            format!("HTTP {} {}", status.code, status.reason).trim_end().to_owned()
        }
        Some(status) => status.message.clone(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn of_an_answer_its_sentence_is_said_and_of_one_without_a_sentence_its_code() {
        let gone = Status::failure("namespaces \"a\" not found", "NotFound").with_code(404);
        let bare = Status::failure("", "").with_code(502);
        for (status, expected) in [(gone, "namespaces \"a\" not found"), (bare, "HTTP 502")] {
            let boxed: Box<dyn Error> = Box::new(kube::Error::Api(status.clone().boxed()));
            assert_eq!(own_sentence(&*boxed), expected);
            assert_eq!(own_sentence(&Box::new(kube::Error::Api(status.clone().boxed()))), expected);
            assert_eq!(own_sentence(&status), expected);
        }
        let silent = kube::Error::Service("the API server at https://a does not answer".into());
        assert_eq!(own_sentence(&silent), "the API server at https://a does not answer");
        assert_eq!(own_sentence(&std::io::Error::other("no such file")), "no such file");
    }
}
