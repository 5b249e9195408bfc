//! Lists in answers: which texts have one, which are refused, and what edits leave as it was.

use bytes::Bytes;
use mcp_wire::{List, ListKind};
use proptest::prelude::*;

const ALL: [ListKind; 4] = [ListKind::Tools, ListKind::Resources, ListKind::ResourceTemplates, ListKind::Prompts];

fn read(text: &str) -> Result<Option<List>, &'static str> {
    List::read(Bytes::copy_from_slice(text.as_bytes()), &[ListKind::Tools])
}

fn list(tools: &str) -> String {
    format!(r#"{{ "jsonrpc":"2.0", "result" : {{"a":1.0,"tools" : {tools},"nextCursor":"\u0041"}},"id":1e0}}"#)
}

fn text(list: List) -> Option<String> {
    list.into_text().map(|text| String::from_utf8(text.to_vec()).unwrap())
}

#[test]
fn edits_leave_every_other_byte_as_it_was() {
    let entries = r#"[ {"name":"a","x":1.0} , { "z":1e1, "n\u0061me":"\u0062", "description":"old" },{"name":"c"}]"#;
    let edited = |edit: &dyn Fn(&mut mcp_wire::Entry<'_>) -> bool| {
        let mut list = read(&list(entries)).unwrap().unwrap();
        list.retain(|entry| Ok::<_, ()>(edit(entry))).unwrap();
        text(list)
    };
    assert_eq!(edited(&|_| true), None);
    assert_eq!(edited(&|_| false), Some(list("[]")));
    let second = list(r#"[{ "z":1e1, "n\u0061me":"\u0062", "description":"old" }]"#);
    assert_eq!(edited(&|entry| entry.name() == "b"), Some(second));
    let renamed = edited(&|entry| {
        if entry.name() == "c" {
            return false;
        }
        let name = format!("\"{}", entry.name());
        entry.rename(&name).and_then(|()| entry.describe("new")).unwrap();
        assert_eq!(entry.name(), name, "a filter further out sees the new name");
        assert_eq!(entry.member("description").unwrap().unwrap().get(), "\"new\"");
        true
    });
    let first = r#"{"name":"\"a","description":"new","x":1.0}"#;
    let second = r#"{ "z":1e1, "n\u0061me":"\"b", "description":"new" }"#;
    assert_eq!(renamed, Some(list(&format!("[{first},{second}]"))));
}

#[test]
fn each_kind_of_list_names_its_entries_by_a_member_of_its_own() {
    for kind in ALL {
        let (member, key) = (kind.member(), kind.key());
        let whole = format!(r#"{{"result":{{"{member}":[{{"{key}":"a"}},{{"{key}":"b","more":{{}}}}]}}}}"#);
        let read = |kinds: &[ListKind]| List::read(whole.clone().into(), kinds).unwrap();
        let mut list = read(&ALL).unwrap();
        assert_eq!((list.kind(), list.entries().len()), (kind, 2));
        list.retain(|entry| Ok::<_, ()>(entry.name() != "a")).unwrap();
        assert_eq!(text(list).unwrap(), format!(r#"{{"result":{{"{member}":[{{"{key}":"b","more":{{}}}}]}}}}"#));
        assert!(
            read(&ALL.map(|other| if other == kind { ListKind::Tools } else { other })).is_none() || kind == ALL[0]
        );
    }
    let both = r#"{"result":{"tools":[],"prompts":[]}}"#;
    assert!(List::read(both.into(), &ALL).is_err(), "a client may read either");
    assert!(List::read(both.into(), &ALL[..2]).unwrap().is_some());
}

#[test]
fn a_private_list_says_so_where_it_speaks_of_caching() {
    let whole = |before: &str, tools: &str, after: &str| format!(r#"{{"result":{{{before}"tools":{tools}{after}}}}}"#);
    for (before, after, private_before, private_after) in [
        ("", "", "", ""),
        (r#""ttlMs":0,"#, r#","cacheScope":"private""#, r#""ttlMs":0,"#, r#","cacheScope":"private""#),
        (r#""ttlMs":3e5,"#, r#","cacheScope":"public""#, r#""ttlMs":0,"#, r#","cacheScope":"private""#),
        (r#""cacheScope":"public","ttlMs":1,"#, "", r#""cacheScope":"private","ttlMs":0,"#, ""),
    ] {
        for (tools, hides) in [(r#"[{"name":"a"}]"#, false), (r#"[ {"name":"a"},{"name":"hidden"}]"#, true)] {
            let mut list = read(&whole(before, tools, after)).unwrap().unwrap();
            list.keep_private().unwrap();
            list.retain(|entry| Ok::<_, ()>(entry.name() == "a")).unwrap();
            let expected = whole(private_before, r#"[{"name":"a"}]"#, private_after);
            let changed = hides || before != private_before;
            assert_eq!(text(list), Some(expected).filter(|_| changed), "{before} {after}");
        }
    }
    let mut list = read(r#"{"result":{"tools":[],"TTLms":9}}"#).unwrap().unwrap();
    assert!(list.keep_private().is_err());
}

#[test]
fn a_list_that_can_be_read_in_two_ways_is_refused() {
    for text in [
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
        assert!(read(&text).is_err(), "{text:.200}");
    }
}

#[test]
fn a_text_that_only_lenient_readers_take_for_json_is_refused() {
    let hidden = list(r#"[{"name":"other"}]"#).replace("\\u0041", "A");
    for prefix in ["\u{feff}", "\u{feff}\u{feff}", "/**/", "//\n", "null\n", "7 ", "\u{b}", "\u{a0}", ")]}'\n", "\0"] {
        for text in [
            format!("{prefix}{hidden}"),
            format!("{prefix}{}", hidden.replace("tools", "t\\u006fols")),
            format!("{prefix}{}", hidden.replace("tools", "TOOL\u{17f}")),
            format!("{prefix}{}", hidden.replace("\"tools\"", "tools")),
        ] {
            assert!(read(&text).is_err(), "{text}");
        }
    }
}

#[test]
fn what_has_no_list_passes() {
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
        r#"{"jsonrpc":"2.0","id":1,"result":{"prompts":7,"Resources":[]}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"tools":[{"name":"x"}]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"tools"}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"result":{}}, 7]"#,
    ] {
        assert!(read(text).unwrap().is_none(), "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_judged_never_a_panic(text in "\\PC{0,60}|[\\[\\]{}:,\"a-z]{0,60}|(\\{\"result\":|\\{\"tools\":|\\[|\\{\"name\":|\"a\"|\\}|\\]|,){0,20}") {
        if let Ok(Some(mut list)) = read(&text) {
            let _ = list.keep_private();
            let edited = list.retain(|entry| entry.rename("x").and_then(|()| entry.describe("y")).map(|()| true));
            if edited.is_ok() && let Some(edited) = list.into_text() {
                prop_assert!(List::read(edited, &ALL).is_ok());
            }
        }
    }
}
