//! Matchers: CEL expressions over the claims of a caller. The operator compiles one to tell its author of a fault, and a proxy evaluates it for each
//! caller.
//!
//! ```
//! use mcp_matcher::{Claims, Matcher};
//! use serde_json::json;
//!
//! let claims = json!({"groups": ["ops"]});
//! let claims = Claims::of(claims.as_object().unwrap());
//! let is_true = |text: &str| Matcher::new(text).map(|matcher| matcher.is_true_of(&claims));
//! assert_eq!(is_true(r#""ops" in claims["groups"]"#), Ok(true));
//! assert_eq!(is_true("claims.level > 3"), Ok(false), "a caller without the claim");
//! assert!(is_true("groups == 1").unwrap_err().contains(r#"uses "groups""#));
//! ```

mod check;
mod patterns;

use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program, Value, to_value};
use serde_json::Map;

use self::patterns::Patterns;

/// The functions and macros of every matcher.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut environment = Env::stdlib();
    // It is declared there already where another crate asks CEL for it: the same, and slower.
    let _ = patterns::declare(&mut environment);
    Arc::new(environment)
});
/// The stack that whoever reads or evaluates a matcher gets: 17 brackets in each other take 4 MiB of it where nothing is optimised.
const STACK: usize = 16 << 20;
/// The variable that a matcher has.
const CLAIMS: &str = "claims";

/// An expression that is true of some callers.
pub struct Matcher {
    program: Program,
    patterns: Arc<Patterns>,
}

/// The claims of a caller, for every matcher that is asked about it.
pub struct Claims(Context<'static, 'static>);

impl Matcher {
    /// The matcher that `text` is.
    ///
    /// # Errors
    /// Says what is wrong with the text, and how to mend it.
    pub fn new(text: &str) -> Result<Self, String> {
        let (program, patterns) = check::compiled(text)?;
        Ok(Self { program, patterns: Arc::new(patterns) })
    }

    /// Whether it is true of a caller. It is not where it cannot be evaluated, as for a claim that the caller does not have.
    pub fn is_true_of(&self, claims: &Claims) -> bool {
        patterns::set(&self.patterns);
        stacker::grow(STACK, || matches!(self.program.execute(&claims.0), Ok(Value::Bool(true))))
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").finish_non_exhaustive()
    }
}

impl Claims {
    /// The claims, as a token has them.
    pub fn of(claims: &Map<String, serde_json::Value>) -> Self {
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        // JSON is a value of CEL always; of nothing, no matcher is true.
        context.add_variable_from_value(CLAIMS, to_value(claims).unwrap_or(Value::Null));
        Self(context)
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_true(text: &str) -> bool {
        let claims = json!({
            "sub": "alice", "email": "alice@example.com", "groups": ["ops", "users"], "level": 4, "ratio": 1.5, "active": true,
            "none": null, "realm": {"roles": ["admin"]}, "https://example.com/tier": "gold",
        });
        let claims = Claims::of(claims.as_object().unwrap());
        Matcher::new(text).unwrap_or_else(|problem| panic!("{text}: {problem}")).is_true_of(&claims)
    }

    #[test]
    fn a_matcher_is_true_of_whom_it_describes() {
        for (text, expected) in [
            (r#""ops" in claims["groups"]"#, true),
            (r#""admins" in claims["groups"]"#, false),
            (r#"claims.sub == "alice" && claims.level >= 4"#, true),
            ("claims.level == 4.0 && claims.ratio < 2.0", true),
            (r#"claims["https://example.com/tier"] == "gold""#, true),
            (r#""admin" in claims.realm.roles"#, true),
            (
                r#"claims.email.endsWith("@example.com") && claims.sub.startsWith("a") && claims.sub.contains("lic")"#,
                true,
            ),
            (r#"claims.email.matches("^[a-z]+@example[.]com$")"#, true),
            (r#"matches(claims.sub, "^a") && claims.sub.matches("e$") && !claims.sub.matches("^b")"#, true),
            (r#"claims.groups.exists(group, group.matches("^op"))"#, true),
            (r#"claims.level.matches("4")"#, false),
            (r#"claims.groups.exists(group, group == "ops")"#, true),
            (r#"claims.groups.all(group, group == "ops")"#, false),
            (r#"size(claims.groups) == 2 && string(claims.level) == "4""#, true),
            ("has(claims.missing) ? false : claims.active", true),
            // One that cannot be evaluated is not true.
            (r#"claims.missing == "x""#, false),
            ("claims.sub > 3", false),
            (r#""x" in claims.sub"#, false),
            // Nor is what has another value than true.
            ("claims.sub", false),
            ("1", false),
            ("claims.none", false),
        ] {
            assert_eq!(is_true(text), expected, "{text}");
        }
    }

    #[test]
    fn no_pattern_is_compiled_for_a_caller() {
        let claims = Claims::of(&Map::new());
        let matcher = Matcher::new("'ops'.matches('^o')").unwrap();
        assert!(matcher.is_true_of(&claims));
        let other = ENVIRONMENT.compile("'ops'.matches('^op')").unwrap();
        assert!(other.execute(&claims.0).is_err(), "its pattern is none of the matcher");
    }

    #[test]
    fn the_deepest_matchers_fit_a_small_stack() {
        let chain = |with: &str| vec!["claims.level"; 50].join(with);
        let brackets = format!("{}claims.level{}", "(".repeat(16), ")".repeat(16));
        let lists = format!("{}claims.level{} == []", "[".repeat(16), "]".repeat(16));
        let all = format!("claims.groups.exists(g, {} > 0)", chain(" + "));
        let deep = [chain(" + "), chain(" - "), format!("{}claims.active", "!".repeat(60)), brackets, lists, all];
        let evaluate = move || deep.map(|text| is_true(&text));
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(evaluate).unwrap();
        assert_eq!(thread.join().unwrap(), [false, false, true, false, false, true]);
    }
}
