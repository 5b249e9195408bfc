//! Lists of tools as clients see them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::names::tests::names;
use super::*;

/// The text that clients get in place of `text`; `None` where that is withheld.
fn shown(names: &ToolNames, text: &str) -> Option<String> {
    let list = List::read(text.to_owned().into(), &[ListKind::Tools]).ok()?;
    let Some(list) = list else { return Some(text.to_owned()) };
    let edited = names.present(list).ok()?.into_text();
    Some(edited.map_or_else(|| text.to_owned(), |edited| String::from_utf8(edited.to_vec()).unwrap()))
}

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
        assert_eq!(shown(names, &list(tools)), Some(list(expected)), "{tools}");
    }
}

#[test]
fn a_list_with_two_shown_tools_of_one_name_is_withheld() {
    let names = names(json!({"filter_tools": ["echo"]}));
    assert_eq!(shown(&names, &list(r#"[{"name":"echo"},{"name":"echo"}]"#)), None);
    assert_eq!(shown(&names, &list(r#"[{"name":"x"},{"name":"x"}]"#)), Some(list("[]")));
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
        allowed in prop::collection::btree_set("[a-g]", 0..4),
        renamed in prop::collection::btree_map("[a-e]", "[a-g]", 0..3),
    ) {
        let overrides: serde_json::Map<String, Value> =
            renamed.into_iter().map(|(tool, name)| (tool, json!({"name": name}))).collect();
        let parameters = json!({"filter_tools": allowed, "tools_override": overrides});
        let read = <ToolFilterParameters as mcp_runconfig::Parameters>::read(parameters, "p").unwrap();
        prop_assume!(ToolNames::new(read.clone()).is_ok());
        let names = ToolNames::new(read).unwrap();
        let text = list(&Value::from(tools.clone()).to_string());
        let Some(read) = shown(&names, &text) else { return Ok(()) };
        let answer: Value = serde_json::from_str(&read).unwrap();
        let listed = answer["result"]["tools"].as_array().unwrap();
        for tool in listed {
            let name = tool["name"].as_str().unwrap();
            prop_assert!(allowed.is_empty() || allowed.contains(name), "{name} is hidden");
            let real = names.tool(name);
            prop_assert!(tools.iter().any(|tool| tool["name"].as_str() == real), "{name} calls {real:?}");
        }
        prop_assert_eq!(&answer["result"]["a"], &json!(1.0));
    }
}
