//! Matchers: CEL expressions over the claims of a caller. Proxies evaluate them; here they are compiled, so that an author learns of a fault
//! when the object is applied.

use cel::{
    IdedExpr as Expression, Program,
    common::ast::{EntryExpr, Expr},
};

/// The longest matcher, in bytes.
const LONGEST: usize = 1024;
/// The most brackets and conditions that may be open at one place: the parser calls itself for each.
const DEEPEST: usize = 16;
/// The stack that the parser gets: 17 brackets in each other take 4 MiB of it where nothing is optimised.
const STACK: usize = 16 << 20;
/// The variable that a matcher has.
const CLAIMS: &str = "claims";

/// Says what is wrong with the text of a matcher and how to mend it, if anything is.
pub(super) fn problem(text: &str) -> Option<String> {
    if text.len() > LONGEST {
        return Some(format!("has {} bytes; write at most {LONGEST}", text.len()));
    }
    if depth(text) > DEEPEST {
        return Some(format!("has more than {DEEPEST} brackets or conditions in each other; write a simpler one"));
    }
    stacker::grow(STACK, || compiled(text))
}

fn compiled(text: &str) -> Option<String> {
    let program = match Program::compile(text) {
        Ok(program) => program,
        Err(errors) => {
            let first = errors.errors.first().map(|error| error.msg.clone()).unwrap_or_default();
            return Some(format!("is not CEL: {first}; write an expression such as \"admins\" in claims[\"groups\"]"));
        }
    };
    let unknown = unknown(program.expression(), &[CLAIMS]);
    unknown.map(|name| format!("uses {name:?}, which no matcher has; the claims of a caller are {CLAIMS}"))
}

/// The first variable of an expression that is none of `known`. A macro such as `exists` has variables of its own.
fn unknown<'a>(expression: &'a Expression, known: &[&'a str]) -> Option<&'a str> {
    let inner: Vec<&Expression> = match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => Vec::new(),
        // Variables of macros begin with @.
        Expr::Ident(name) => return (!name.starts_with('@') && !known.contains(&name.as_str())).then_some(name),
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).collect(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Struct(made) => made.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Comprehension(over) => {
            let own = [Some(&*over.iter_var), over.iter_var2.as_deref(), Some(&*over.accu_var)];
            let known: Vec<&str> = known.iter().copied().chain(own.into_iter().flatten()).collect();
            let all = [&over.iter_range, &over.accu_init, &over.loop_cond, &over.loop_step, &over.result];
            return all.into_iter().find_map(|part| unknown(part, &known));
        }
    };
    inner.into_iter().find_map(|part| unknown(part, known))
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
