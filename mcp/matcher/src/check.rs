//! The rules of a matcher: what it may be, so that its author learns of a fault at once, and no caller makes a proxy work for long.

use cel::{
    IdedExpr as Expression, Program,
    common::ast::{CallExpr, EntryExpr, Expr, LiteralValue},
};
use regex::{Error, RegexBuilder};

use crate::patterns::Patterns;
use crate::{CLAIMS, ENVIRONMENT, STACK};

/// The longest matcher, in bytes.
const LONGEST: usize = 1024;
/// The most brackets and conditions that may be open at one place: the parser calls itself for each.
const DEEPEST: usize = 16;
/// The most operations in each other: whoever evaluates one calls itself for each.
const OPERATIONS: usize = 64;
/// The most bytes that a compiled pattern takes: one of 10 MiB, the most that the library allows, takes 70 ms to compile.
const PATTERN: usize = 1 << 20;
/// The functions that a matcher has beside operators and macros.
const FUNCTIONS: [&str; 13] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
];
/// The types, which are named as variables are.
const TYPES: [&str; 10] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// Compiles a matcher, or says what is wrong with the text and how to mend it.
pub(crate) fn compiled(text: &str) -> Result<(Program, Patterns), String> {
    if text.len() > LONGEST {
        return Err(format!("has {} bytes; write at most {LONGEST}", text.len()));
    }
    if depth(text) > DEEPEST {
        return Err(format!("has more than {DEEPEST} brackets or conditions in each other; write a simpler one"));
    }
    stacker::grow(STACK, || {
        let program = ENVIRONMENT.compile(text).map_err(|errors| {
            let first = errors.errors.first().map(|error| error.msg.clone()).unwrap_or_default();
            format!("is not CEL: {first}; write an expression such as \"admins\" in claims[\"groups\"]")
        })?;
        let mut patterns = Patterns::new();
        match fault(program.expression(), &[CLAIMS], 0, &mut patterns) {
            Some(fault) => Err(fault),
            None => Ok((program, patterns)),
        }
    })
}

/// The first fault of an expression that is `deep` in others and has the variables `known`. A macro such as `exists` has variables of its own. Its
/// patterns are compiled on the way.
fn fault<'a>(expression: &'a Expression, known: &[&'a str], deep: usize, patterns: &mut Patterns) -> Option<String> {
    if deep > OPERATIONS {
        return Some(format!("has more than {OPERATIONS} operations in each other; write a simpler one"));
    }
    let inner: Vec<&Expression> = match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => Vec::new(),
        // Variables of macros begin with @.
        Expr::Ident(name) if name.starts_with('@') || known.contains(&name.as_str()) => Vec::new(),
        Expr::Ident(name) if TYPES.contains(&name.as_str()) => Vec::new(),
        Expr::Ident(name) => {
            return Some(format!("uses {name:?}, which no matcher has; the claims of a caller are {CLAIMS}"));
        }
        Expr::Call(call) => {
            if let Some(fault) = of_call(call, patterns) {
                return Some(fault);
            }
            call.target.iter().map(|target| &**target).chain(&call.args).collect()
        }
        Expr::Select(select) => vec![&*select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Struct(made) => made.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Comprehension(over) => {
            // The accumulator is known in a macro alone, and each of them multiplies the work.
            if known.contains(&&*over.accu_var) {
                return Some("has a macro such as exists in another; write one without".to_owned());
            }
            let range = fault(&over.iter_range, known, deep + 1, patterns);
            let own = [Some(&*over.iter_var), over.iter_var2.as_deref(), Some(&*over.accu_var)];
            let known: Vec<&str> = known.iter().copied().chain(own.into_iter().flatten()).collect();
            let each = [&over.accu_init, &over.loop_cond, &over.loop_step, &over.result];
            return range.or_else(|| each.into_iter().find_map(|part| fault(part, &known, deep + 1, patterns)));
        }
    };
    inner.into_iter().find_map(|part| fault(part, known, deep + 1, patterns))
}

/// The fault of a call itself: functions are found when it is evaluated, and then it would be true of nobody.
fn of_call(call: &CallExpr, patterns: &mut Patterns) -> Option<String> {
    let name = &*call.func_name;
    // Names of operators begin with a sign.
    if name.starts_with(|first: char| first.is_ascii_alphabetic()) && !FUNCTIONS.contains(&name) {
        return Some(format!("calls {name:?}, which no matcher has; use one of {}", FUNCTIONS.join(", ")));
    }
    if name != "matches" {
        return None;
    }
    match call.args.last().map(|pattern| &pattern.expr) {
        Some(Expr::Literal(LiteralValue::String(pattern))) => {
            match RegexBuilder::new(pattern.inner()).size_limit(PATTERN).build() {
                Ok(compiled) => {
                    patterns.insert(pattern.inner().to_owned(), compiled);
                    None
                }
                Err(Error::CompiledTooBig(_)) => Some(
                    "matches a pattern that repeats too much; write fewer repetitions, or [a-z] for \\w".to_owned(),
                ),
                Err(error) => {
                    let lines = error.to_string();
                    let last = lines.lines().last().unwrap_or_default().trim_start_matches("error: ");
                    Some(format!("matches no pattern: {last}; write one in the syntax of RE2"))
                }
            }
        }
        _ => Some("matches a pattern that is no literal; write the pattern itself".to_owned()),
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&Expression> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// The number of brackets and conditions that are open at one place of the text, at most; those inside of strings count too.
fn depth(text: &str) -> usize {
    let (mut open, mut most, mut conditions) = (0_usize, 0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            b'?' => conditions += 1,
            _ => {}
        }
        most = most.max(open);
    }
    most.max(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matcher_that_could_never_be_true_is_refused() {
        let operations = vec!["1"; 100].join(" + ");
        for (text, problem) in [
            ("claims[", "is not CEL: "),
            ("groups == 1", "uses \"groups\", which no matcher has"),
            ("claims.a.exists(a, b)", "uses \"b\", which no matcher has"),
            ("claims.a.lowerAscii() == 'x'", "calls \"lowerAscii\", which no matcher has"),
            ("timestamp(claims.exp) > timestamp(claims.iat)", "calls \"timestamp\", which no matcher has"),
            ("claims.a.matches('(')", "matches no pattern: unclosed group; write"),
            (r"claims.a.matches('\\w{100}')", "matches a pattern that repeats too much"),
            ("claims.a.matches(claims.b)", "matches a pattern that is no literal"),
            ("claims.a.exists(a, claims.b.exists(b, a == b))", "has a macro such as exists in another"),
            (&operations, "has more than 64 operations in each other"),
            (&"[".repeat(17), "has more than 16 brackets"),
            (&"a".repeat(1025), "has 1025 bytes"),
        ] {
            let found = compiled(text).err().unwrap_or_default();
            assert!(found.starts_with(problem) && found.contains("; "), "{text}: {found}");
        }
    }
}
