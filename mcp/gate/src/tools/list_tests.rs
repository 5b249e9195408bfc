//! Lists of tools as clients see them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::names::tests::names;
use super::*;

fn list(tools: &str) -> String {
    format!(r#"{{ "jsonrpc":"2.0", "result" : {{"a":1.0,"tools" : {tools},"nextCursor":"\u0041"}},"id":1e0}}"#)
}

#[test]
fn hidden_tools_go_renamed_ones_change_and_every_other_byte_stays() {
    let filter = names(
        json!({"filter_tools": ["echo", "say"], "tools_override": {"shout": {"name": "say", "description": "\"d\""}}}),
    );
    let renamed = names(json!({"tools_override": {"a": {"name": "b"}, "c": {"description": "new"}}}));
    for (names, tools, expected) in [
        (&filter, r#"[ {"name":"echo","x":1.0} ]"#, r#"[ {"name":"echo","x":1.0} ]"#),
        (
            &filter,
            r#"[{"name":"other"},{ "z":1e1, "n\u0061me":"e\u0063ho" }]"#,
            r#"[{ "z":1e1, "n\u0061me":"e\u0063ho" }]"#,
        ),
        (&filter, r#"[{"name":"other"}]"#, "[]"),
        (&filter, "[]", "[]"),
        (
            &filter,
            r#"[{"description":"old","inputSchema":{"name":"shout","Name":1},"name":"shout","_meta":{"n":1.50}}]"#,
            r#"[{"description":"\"d\"","inputSchema":{"name":"shout","Name":1},"name":"say","_meta":{"n":1.50}}]"#,
        ),
        (&filter, r#"[{"name":"shout"}]"#, r#"[{"name":"say","description":"\"d\""}]"#),
        // The server's own `b` cannot be called any more: its name is another tool's.
        (&renamed, r#"[{"name":"a"},{"name":"b"}]"#, r#"[{"name":"b"}]"#),
        (&renamed, r#"[{"name":"c","description":"old"}]"#, r#"[{"name":"c","description":"new"}]"#),
    ] {
        let text = list(tools);
        let expected = if tools == expected { Verdict::Pass } else { Verdict::Replace(list(expected)) };
        assert_eq!(names.filter(&text), expected, "{tools}");
    }
}

#[test]
fn a_list_that_can_be_read_in_two_ways_is_withheld() {
    let names = names(json!({"filter_tools": ["echo"]}));
    for text in [
        list(r#"[{"name":"echo"},{"name":"echo"}]"#),
        list(r#"[{"name":"echo","name":"other"}]"#),
        list(r#"[{"name":"echo","Name":"other"}]"#),
        list(r#"[{"name":"echo","inputSchema":{"a":1,"a":2}}]"#),
        list(r#"[{"name":"echo","Description":"d"}]"#),
        list(r#"[{"NAME":"other"}]"#),
        list(r#"[{"name":7}]"#),
        list(r#"[{"title":"echo"}]"#),
        list(r#"["echo"]"#),
        list(r#"{"name":"other"}"#),
        list(r#"[{"name":"echo"}],"Tools":[{"name":"other"}]"#),
        r#"{"result":{"TOOLS":[{"name":"other"}]}}"#.to_owned(),
        r#"{"result":{},"Result":{"tools":[{"name":"other"}]}}"#.to_owned(),
        r#"{"re\u017Fult":{"tools":[{"name":"other"}]}}"#.to_owned(),
        r#"{"result":{"tools":[{"name":"oth"#.to_owned(),
        format!("{}x", list("[]")),
        format!("[{}]", list(r#"[{"name":"other"}]"#)),
        format!("{}{}", "[".repeat(100_000), "]".repeat(99_999)),
    ] {
        assert!(matches!(names.filter(&text), Verdict::Withhold(_)), "{text:.200}");
    }
}

#[test]
fn a_text_that_only_lenient_readers_take_for_json_does_not_show_a_hidden_tool() {
    let names = names(json!({"filter_tools": ["echo"]}));
    let hidden = list(r#"[{"name":"other"}]"#).replace("\\u0041", "A");
    for prefix in ["\u{feff}", "\u{feff}\u{feff}", "/**/", "//\n", "null\n", "7 ", "\u{b}", "\u{a0}", ")]}'\n", "\0"] {
        for text in [
            format!("{prefix}{hidden}"),
            format!("{prefix}{}", hidden.replace("tools", "t\\u006fols")),
            format!("{prefix}{}", hidden.replace("tools", "TOOL\u{17f}")),
            format!("{prefix}{}", hidden.replace("\"tools\"", "tools")),
        ] {
            assert!(matches!(names.filter(&text), Verdict::Withhold(_)), "{text}");
        }
    }
}

#[test]
fn what_is_no_list_of_tools_passes() {
    let names = names(json!({"filter_tools": ["echo"]}));
    for text in [
        "",
        "not JSON",
        "7",
        "7 {}",
        "/messages?tools=\"tools\"",
        r#""{\"tools\":[]}""#,
        "body { color: red }",
        r#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{}},"Tool":1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":null}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":[{"tools":1}]}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"tools":[{"name":"x"}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"tools"}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"result":{}}, 7]"#,
    ] {
        assert_eq!(names.filter(text), Verdict::Pass, "{text}");
    }
}

fn tool() -> impl Strategy<Value = Value> {
    ("[a-e]", any::<Option<bool>>(), "[a-z\"\\\\é]{0,4}").prop_map(|(name, description, more)| {
        let mut tool = json!({"inputSchema": {"name": more}, "name": name, more: 1.5});
        if description.is_some() {
            tool["description"] = more_text(description).into();
        }
        tool["name"] = name.into();
        tool
    })
}

fn more_text(long: Option<bool>) -> &'static str {
    if long == Some(true) { "a long text" } else { "" }
}

proptest! {
    #[test]
    fn what_a_client_reads_is_allowed_and_callable(
        tools in prop::collection::vec(tool(), 0..6),
        shown in prop::collection::btree_set("[a-g]", 0..4),
        renamed in prop::collection::btree_map("[a-e]", "[a-g]", 0..3),
    ) {
        let overrides: serde_json::Map<String, Value> =
            renamed.into_iter().map(|(tool, name)| (tool, json!({"name": name}))).collect();
        let parameters = json!({"filter_tools": shown, "tools_override": overrides});
        let read = <ToolFilterParameters as mcp_runconfig::Parameters>::read(parameters, "p").unwrap();
        prop_assume!(ToolNames::new(read.clone()).is_ok());
        let names = ToolNames::new(read).unwrap();
        let text = list(&Value::from(tools.clone()).to_string());
        let read = match names.filter(&text) {
            Verdict::Pass => text,
            Verdict::Replace(text) => text,
            Verdict::Withhold(_) => return Ok(()),
        };
        let answer: Value = serde_json::from_str(&read).unwrap();
        let listed = answer["result"]["tools"].as_array().unwrap();
        for tool in listed {
            let name = tool["name"].as_str().unwrap();
            prop_assert!(shown.is_empty() || shown.contains(name), "{name} is hidden");
            let real = names.tool(name);
            prop_assert!(tools.iter().any(|tool| tool["name"].as_str() == real), "{name} calls {real:?}");
        }
        prop_assert_eq!(&answer["result"]["a"], &json!(1.0));
    }

    #[test]
    fn any_text_is_judged_never_a_panic(text in "\\PC{0,60}|[\\[\\]{}:,\"a-z]{0,60}|(\\{\"result\":|\\{\"tools\":|\\[|\\{\"name\":|\"a\"|\\}|\\]|,){0,20}") {
        names(json!({"filter_tools": ["a"]})).filter(&text);
    }
}
