//! The role of a caller, and the name of its session, by its claims.

use mcp_matcher::{Claims, Matcher};
use mcp_runconfig::{AwsStsConfig, RoleMapping};
use serde_json::{Map, Value};

/// Which callers get which role.
pub(super) struct Roles {
    /// The claim that mappings by value are about.
    claim: String,
    /// The first that fits counts.
    mappings: Vec<Mapping>,
    /// The role of callers whom no mapping fits; empty: they get none.
    fallback: String,
}

struct Mapping {
    rule: Rule,
    role: String,
}

enum Rule {
    Has(String),
    Matches(Matcher),
}

impl Roles {
    /// The roles of a document. An error is the member at fault, what is wrong with it, and the fix.
    pub(super) fn new(config: &AwsStsConfig) -> Result<Self, (String, String, &'static str)> {
        if config.fallback_role_arn.is_empty() && config.role_mappings.is_empty() {
            return Err((
                "fallback_role_arn".to_owned(),
                "is missing, as is role_mappings".to_owned(),
                "write one of them",
            ));
        }
        if !config.fallback_role_arn.is_empty() {
            check_role("fallback_role_arn", &config.fallback_role_arn)?;
        }
        let mut mappings = Vec::new();
        for (at, mapping) in config.role_mappings.iter().enumerate() {
            let RoleMapping { claim, matcher, role_arn, priority } = mapping;
            let member = format!("role_mappings[{at}]");
            check_role(&format!("{member}.role_arn"), role_arn)?;
            let rule = match (claim.is_empty(), matcher.is_empty()) {
                (false, true) => Rule::Has(claim.clone()),
                (true, false) => Rule::Matches(Matcher::new(matcher).map_err(|problem| {
                    (format!("{member}.matcher"), problem, "write a CEL expression over the caller's claims")
                })?),
                (true, true) => {
                    return Err((member, "has neither claim nor matcher".to_owned(), "write one of them"));
                }
                (false, false) => return Err((member, "has claim and matcher".to_owned(), "keep one of them")),
            };
            mappings.push((priority.unwrap_or(i64::MAX), Mapping { rule, role: role_arn.clone() }));
        }
        // The sort is stable: the first of two with one priority stays first.
        mappings.sort_by_key(|(priority, _)| *priority);
        let claim = if config.role_claim.is_empty() { "groups" } else { &config.role_claim };
        Ok(Self {
            claim: claim.to_owned(),
            mappings: mappings.into_iter().map(|(_, mapping)| mapping).collect(),
            fallback: config.fallback_role_arn.clone(),
        })
    }

    /// The role of a caller; or why it has none.
    pub(super) fn choose(&self, claims: &Map<String, Value>) -> Result<&str, String> {
        let mut asked = None;
        let mut unreadable = false;
        for Mapping { rule, role } in &self.mappings {
            let fits = match rule {
                Rule::Has(value) => match claims.get(&self.claim) {
                    None => false,
                    Some(Value::String(one)) => one == value,
                    Some(Value::Array(several)) => several.iter().any(|one| one == value),
                    Some(_) => {
                        unreadable = true;
                        false
                    }
                },
                Rule::Matches(matcher) => matcher.is_true_of(asked.get_or_insert_with(|| Claims::of(claims))),
            };
            if fits {
                return Ok(role);
            }
        }
        // Nobody can tell who that is: the role of everybody else may open more than its own.
        if unreadable {
            return Err(format!("the claim {} is neither a string nor a list", self.claim));
        }
        if self.fallback.is_empty() {
            return Err("no mapping of a role fits the caller, and there is no fallback_role_arn".to_owned());
        }
        Ok(&self.fallback)
    }
}

fn check_role(member: &str, role: &str) -> Result<(), (String, String, &'static str)> {
    let mut parts = role.splitn(6, ':');
    let mut next = || parts.next().unwrap_or_default();
    let is_arn =
        next() == "arn" && ["aws", "aws-cn", "aws-us-gov"].contains(&next()) && next() == "iam" && next().is_empty();
    let (account, resource) = (next(), next());
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@-_/".contains(&byte))
    };
    if is_arn && is_account && resource.strip_prefix("role/").is_some_and(is_name) {
        return Ok(());
    }
    let problem = if role.is_empty() { "is missing or empty".to_owned() } else { format!("{role:?} is no role") };
    Err((member.to_owned(), problem, "write an ARN such as arn:aws:iam::123456789012:role/readers"))
}

/// The name of a caller's session, which `claim` has; or why it has none.
pub(super) fn session_name<'a>(claims: &'a Map<String, Value>, claim: &str) -> Result<&'a str, String> {
    let Some(name) = claims.get(claim).and_then(Value::as_str) else {
        return Err(format!("the claim {claim}, which names its session, is no string"));
    };
    let is_name = (2..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte));
    // The claim itself is not for the log: it may be an address.
    is_name.then_some(name).ok_or_else(|| {
        format!("the claim {claim} cannot name a session: AWS takes 2 to 64 letters, digits and any of _+=,.@-")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str) -> String {
        format!("arn:aws:iam::123456789012:role/{name}")
    }

    fn config(mappings: &[(&str, &str, &str, Option<i64>)], fallback: &str) -> AwsStsConfig {
        let mapping = |(claim, matcher, name, priority): &(&str, &str, &str, _)| RoleMapping {
            claim: (*claim).to_owned(),
            matcher: (*matcher).to_owned(),
            role_arn: role(name),
            priority: *priority,
        };
        AwsStsConfig {
            role_mappings: mappings.iter().map(mapping).collect(),
            fallback_role_arn: if fallback.is_empty() { String::new() } else { role(fallback) },
            ..AwsStsConfig::default()
        }
    }

    #[test]
    fn the_first_mapping_that_fits_gives_the_role() {
        let by_claim: &[_] = &[("ops", "", "ops", None), ("admins", "", "admins", Some(1))];
        let mixed: &[_] = &[
            ("", "claims.level > 3", "high", Some(2)),
            ("ops", "", "ops", Some(2)),
            ("", r#"claims.sub == "root""#, "root", Some(0)),
        ];
        for (mappings, fallback, claims, expected) in [
            (by_claim, "all", json!({"groups": ["ops"]}), Some("ops")),
            (by_claim, "all", json!({"groups": ["ops", "admins"]}), Some("admins")),
            (by_claim, "all", json!({"groups": "ops"}), Some("ops")),
            (by_claim, "all", json!({"groups": "ops admins"}), Some("all")),
            (by_claim, "all", json!({"groups": [7, {"ops": "ops"}]}), Some("all")),
            (by_claim, "all", json!({}), Some("all")),
            (by_claim, "", json!({}), None),
            (by_claim, "all", json!({"groups": {"ops": true}}), None),
            (by_claim, "all", json!({"groups": null}), None),
            (by_claim, "all", json!({"groups": true}), None),
            (mixed, "", json!({"level": 4, "groups": ["ops"]}), Some("high")),
            (mixed, "", json!({"level": 3, "groups": ["ops"]}), Some("ops")),
            (mixed, "", json!({"level": 4, "groups": ["ops"], "sub": "root"}), Some("root")),
            (mixed, "all", json!({"level": "4", "groups": 7, "sub": "root"}), Some("root")),
            (mixed, "all", json!({"level": "4", "groups": 7}), None),
            (&[][..], "all", json!({"groups": 7}), Some("all")),
        ] {
            let roles = Roles::new(&config(mappings, fallback)).unwrap();
            let chosen = roles.choose(claims.as_object().unwrap());
            assert_eq!(chosen.ok(), expected.map(role).as_deref(), "{claims}");
        }
        let of_another_claim = AwsStsConfig { role_claim: "roles".to_owned(), ..config(by_claim, "") };
        let claims = json!({"groups": ["admins"], "roles": ["ops"]});
        assert_eq!(Roles::new(&of_another_claim).unwrap().choose(claims.as_object().unwrap()), Ok(&*role("ops")));
    }

    #[test]
    fn roles_are_arns_of_roles() {
        for (text, is_role) in [
            (role("a"), true),
            (role("path/of/A+=,.@-_9"), true),
            ("arn:aws-cn:iam::123456789012:role/a".to_owned(), true),
            (String::new(), false),
            ("readers".to_owned(), false),
            (role(""), false),
            (role("a b"), false),
            (role("a:b"), false),
            ("arn:aws:iam::123:role/a".to_owned(), false),
            ("arn:aws:iam::123456789012:user/a".to_owned(), false),
            ("arn:aws:sts::123456789012:role/a".to_owned(), false),
            ("arn:other:iam::123456789012:role/a".to_owned(), false),
        ] {
            assert_eq!(check_role("role_arn", &text).is_ok(), is_role, "{text}");
        }
    }

    #[test]
    fn a_session_is_named_as_aws_takes_it() {
        let long = "a".repeat(64);
        for (claims, expected) in [
            (json!({"sub": "alice@example.com"}), Some("alice@example.com")),
            (json!({"sub": "a"}), None),
            (json!({"sub": long}), Some(&*long)),
            (json!({"sub": "a".repeat(65)}), None),
            (json!({"sub": "auth0|alice"}), None),
            (json!({"sub": "ålice"}), None),
            (json!({"sub": 12}), None),
            (json!({}), None),
        ] {
            assert_eq!(session_name(claims.as_object().unwrap(), "sub").ok(), expected, "{claims}");
        }
    }
}
