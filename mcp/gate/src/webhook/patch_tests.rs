//! RFC 6902 on texts, and what keeps a patch from felling the proxy.

use serde_json::value::RawValue;

use super::{PatchError, apply};

fn patched(request: &str, patch: &str) -> Result<String, PatchError> {
    let patch: &RawValue = serde_json::from_str(patch).unwrap();
    let patched = apply(request.as_bytes(), "json_patch", patch)?.expect("operations");
    Ok(String::from_utf8(patched).unwrap())
}

#[test]
fn operations_do_what_the_rfc_says_and_leave_the_rest_as_it_was_written() {
    for (request, patch, expected) in [
        // RFC 6902, appendix A.
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/mcp_request/baz","value":"qux"}]"#,
            r#"{"foo":"bar","baz":"qux"}"#,
        ),
        (
            r#"{"foo":["bar","baz"]}"#,
            r#"[{"op":"add","path":"/mcp_request/foo/1","value":"qux"}]"#,
            r#"{"foo":["bar","qux","baz"]}"#,
        ),
        (r#"{"baz":1,"foo":2}"#, r#"[{"op":"remove","path":"/mcp_request/baz"}]"#, r#"{"foo":2}"#),
        (r#"{"foo":[1,2,3]}"#, r#"[{"op":"remove","path":"/mcp_request/foo/1"}]"#, r#"{"foo":[1,3]}"#),
        (r#"{"a":1,"b":2}"#, r#"[{"op":"replace","path":"/mcp_request/a","value":"x"}]"#, r#"{"a":"x","b":2}"#),
        (
            r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
            r#"[{"op":"move","from":"/mcp_request/foo/waldo","path":"/mcp_request/qux/thud"}]"#,
            r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#,
        ),
        (r#"{"foo":[1,2]}"#, r#"[{"op":"add","path":"/mcp_request/foo/-","value":[3]}]"#, r#"{"foo":[1,2,[3]]}"#),
        (r#"{"foo":1}"#, r#"[{"op":"add","path":"/mcp_request/foo","value":null}]"#, r#"{"foo":null}"#),
        (
            r#"{"a":{"b":[1]}}"#,
            r#"[{"op":"copy","from":"/mcp_request/a","path":"/mcp_request/c"}]"#,
            r#"{"a":{"b":[1]},"c":{"b":[1]}}"#,
        ),
        (
            r#"{"a/b":{"m~n":1}}"#,
            r#"[{"op":"replace","path":"/mcp_request/a~1b/m~0n","value":2}]"#,
            r#"{"a/b":{"m~n":2}}"#,
        ),
        // ToolHive counts negative positions from the end.
        (r#"{"foo":[1,2,3]}"#, r#"[{"op":"remove","path":"/mcp_request/foo/-1"}]"#, r#"{"foo":[1,2]}"#),
        // Numbers, escapes and order are not the patch's business.
        (
            r#"{"z":1.00,"y":123456789012345678901234567890,"x":"\u0041","w":[ 1 , 2 ]}"#,
            r#"[{"op":"add","path":"/mcp_request/a","value":1E2}]"#,
            r#"{"z":1.00,"y":123456789012345678901234567890,"x":"\u0041","w":[ 1 , 2 ],"a":1E2}"#,
        ),
    ] {
        assert_eq!(patched(request, patch).unwrap(), expected, "{patch}");
    }
}

#[test]
fn a_test_compares_values_and_not_texts() {
    let test = |value: &str, expected: &str| {
        let patch = format!(r#"[{{"op":"test","path":"/mcp_request/v","value":{expected}}}]"#);
        patched(&format!(r#"{{"v":{value}}}"#), &patch).is_ok()
    };
    for (value, expected, equal) in [
        ("1", "1.0", true),
        ("100", "1e2", true),
        ("1", "2", false),
        ("1", "\"1\"", false),
        ("9007199254740993", "9007199254740992", false),
        (r#""\u0041""#, r#""A""#, true),
        (r#"{"a":1,"b":[2]}"#, r#"{ "b":[2.0], "a":1 }"#, true),
        (r#"{"a":1}"#, r#"{"a":1,"b":2}"#, false),
        ("[1,2]", "[2,1]", false),
        ("null", "null", true),
        ("null", "false", false),
        ("{}", "[]", false),
    ] {
        assert_eq!(test(value, expected), equal, "{value} and {expected}");
    }
}

#[test]
fn an_operation_that_does_not_apply_undoes_the_whole_patch() {
    for operation in [
        r#"{"op":"remove","path":"/mcp_request/none"}"#,
        r#"{"op":"replace","path":"/mcp_request/none","value":1}"#,
        r#"{"op":"add","path":"/mcp_request/none/x","value":1}"#,
        r#"{"op":"add","path":"/mcp_request/a/x","value":1}"#,
        r#"{"op":"add","path":"/mcp_request/list/3","value":1}"#,
        r#"{"op":"add","path":"/mcp_request/list/01","value":1}"#,
        r#"{"op":"add","path":"/mcp_request/list/x","value":1}"#,
        r#"{"op":"remove","path":"/mcp_request/list/-"}"#,
        r#"{"op":"copy","from":"/mcp_request/none","path":"/mcp_request/b"}"#,
        r#"{"op":"move","from":"/mcp_request/o","path":"/mcp_request/o/p/q"}"#,
        r#"{"op":"test","path":"/mcp_request/a","value":2}"#,
    ] {
        let patch = format!(r#"[{{"op":"add","path":"/mcp_request/b","value":1}},{operation}]"#);
        let result = patched(r#"{"a":1,"list":[1,2],"o":{"p":{}}}"#, &patch);
        assert!(matches!(result, Err(PatchError::Apply(1, _))), "{operation}: {result:?}");
    }
}

#[test]
fn a_patch_cannot_grow_or_deepen_the_request_without_end() {
    let grow: Vec<_> =
        (0..40).map(|at| format!(r#"{{"op":"copy","from":"/mcp_request/a","path":"/mcp_request/a/x{at}"}}"#)).collect();
    let result = patched(r#"{"a":{"b":"0123456789"}}"#, &format!("[{}]", grow.join(",")));
    assert!(matches!(result, Err(PatchError::Apply(..))), "{result:?}");

    let deepen: Vec<_> = (0..4000)
        .flat_map(|_| {
            [
                r#"{"op":"add","path":"/mcp_request/b","value":{}}"#,
                r#"{"op":"move","from":"/mcp_request/a","path":"/mcp_request/b/a"}"#,
            ]
            .into_iter()
            .chain(Some(r#"{"op":"move","from":"/mcp_request/b","path":"/mcp_request/a"}"#))
        })
        .take(9_999)
        .collect();
    let result = patched(r#"{"a":{}}"#, &format!("[{}]", deepen.join(",")));
    assert!(matches!(result, Err(PatchError::Apply(..))), "{result:?}");

    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let result = patched(r#"{"a":1}"#, &format!(r#"[{{"op":"test","path":"/mcp_request/a","value":{deep}}}]"#));
    assert!(matches!(result, Err(PatchError::Malformed(_))), "{result:?}");

    let many = vec![r#"{"op":"test","path":"/mcp_request/a","value":1}"#; 10_001];
    let result = patched(r#"{"a":1}"#, &format!("[{}]", many.join(",")));
    assert!(matches!(result, Err(PatchError::Invalid(..))), "{result:?}");
}

#[test]
fn a_patch_cannot_keep_the_proxy_at_work() {
    let operations = |count: usize, operation: &dyn Fn(usize) -> String| {
        format!("[{}]", (0..count).map(operation).collect::<Vec<_>>().join(","))
    };
    let members = |range: std::ops::Range<usize>| range.map(|at| format!(r#""m{at}":0"#)).collect::<Vec<_>>().join(",");
    let object = format!(r#"{{"a":{{{}}},"b":1}}"#, members(0..50_000));
    let array = format!(r#"{{"a":[{}0],"b":1}}"#, "0,".repeat(100_000));
    let last = "/mcp_request/a/m49999";
    for (request, patch) in [
        (&object, operations(9_999, &|_| format!(r#"{{"op":"test","path":"{last}","value":0}}"#))),
        (&object, operations(9_999, &|at| format!(r#"{{"op":"add","path":"/mcp_request/a/x{at}","value":0}}"#))),
        (&object, operations(9_999, &|at| format!(r#"{{"op":"remove","path":"/mcp_request/a/m{}"}}"#, 49_999 - at))),
        (&array, operations(9_999, &|_| r#"{"op":"add","path":"/mcp_request/a/0","value":0}"#.to_owned())),
        (&array, operations(9_999, &|_| r#"{"op":"remove","path":"/mcp_request/a/0"}"#.to_owned())),
        (
            &object,
            operations(9_999, &|at| {
                let (from, to) = if at % 2 == 0 { ("a", "c") } else { ("c", "a") };
                // Opened once, it is looked through each time.
                let open = r#"{"op":"test","path":"/mcp_request/a/m0","value":0},"#;
                let open = if at == 0 { open } else { "" };
                format!(r#"{open}{{"op":"move","from":"/mcp_request/{from}","path":"/mcp_request/{to}"}}"#)
            }),
        ),
    ] {
        match patched(request, &patch) {
            Err(PatchError::Apply(_, problem)) => assert!(problem.0.contains("too much work"), "{problem}"),
            result => panic!("{:.80}: {:.80}", patch, format!("{result:?}")),
        }
    }
    // Patches that look long and are not: the members of two long objects in another order, and a long array that grows
    // at its end.
    let reversed = (0..50_000).rev().map(|at| format!(r#""m{at}":0"#)).collect::<Vec<_>>().join(",");
    let patch = format!(r#"[{{"op":"test","path":"/mcp_request/a","value":{{{reversed}}}}}]"#);
    assert!(patched(&object, &patch).is_ok());
    let patch = operations(9_999, &|_| r#"{"op":"add","path":"/mcp_request/a/-","value":0}"#.to_owned());
    assert!(patched(&array, &patch).is_ok());
}

#[test]
fn the_id_may_be_touched_only_so_that_it_stays_as_it_was() {
    for (operation, kept) in [
        (r#"{"op":"replace","path":"/mcp_request/id","value":7}"#, true),
        (r#"{"op":"test","path":"/mcp_request/id","value":7}"#, true),
        (r#"{"op":"replace","path":"/mcp_request/id","value":7.0}"#, false),
        (r#"{"op":"move","from":"/mcp_request/id","path":"/mcp_request/x"}"#, false),
    ] {
        let result = patched(r#"{"id":7}"#, &format!("[{operation}]"));
        assert_eq!(result.is_ok(), kept, "{operation}");
        assert!(kept || matches!(result, Err(PatchError::Id)), "{operation}");
    }
    // A notification stays one.
    let result = patched("{}", r#"[{"op":"add","path":"/mcp_request/id","value":7}]"#);
    assert!(matches!(result, Err(PatchError::Id)), "{result:?}");
}
