//! The question to the token endpoint.

use form_urlencoded::Serializer;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// The type of actors' tokens: those that Kubernetes gives ServiceAccounts are JWTs.
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// The parts of the question that are the same for every caller.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// The URN of the type that callers' tokens are said to have.
    pub(super) subject_type: String,
    /// Empty: none is named.
    pub(super) audience: String,
    pub(super) scopes: Vec<String>,
}

impl Question {
    /// The form with the caller's token and the actor's (RFC 8693 §2.1).
    pub(super) fn form(&self, subject: &str, actor: Option<&str>) -> String {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", GRANT)
            .append_pair("subject_token", subject)
            .append_pair("subject_token_type", &self.subject_type)
            .append_pair("requested_token_type", ACCESS_TOKEN);
        if let Some(actor) = actor {
            form.append_pair("actor_token", actor).append_pair("actor_token_type", JWT);
        }
        let scope = self.scopes.join(" ");
        let rest = [("audience", &*self.audience), ("scope", &*scope)];
        form.extend_pairs(rest.into_iter().filter(|(_, value)| !value.is_empty()));
        form.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_the_members_that_are_known() {
        let question = Question { subject_type: JWT.to_owned(), audience: String::new(), scopes: Vec::new() };
        let of_type = |kind: &str| format!("urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3A{kind}");
        let plain = format!(
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token=s&subject_token_type={}&requested_token_type={}",
            of_type("jwt"),
            of_type("access_token")
        );
        assert_eq!(question.form("s", None), plain);
        let question = Question { audience: "a b".to_owned(), scopes: vec!["x".into(), "y".into()], ..question };
        let whole = format!("{plain}&actor_token=t&actor_token_type={}&audience=a+b&scope=x+y", of_type("jwt"));
        assert_eq!(question.form("s", Some("t")), whole);
    }
}
