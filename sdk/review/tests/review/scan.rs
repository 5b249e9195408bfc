//! Members of JSON objects, as they are written.

use portcullis_review::scan::{member, members};

#[test]
fn members_are_found_as_they_are_written() {
    let text = " { \"a\" : 1 ,\"b\\\"\":\"x\\\\\\\"},\" , \"c\":{\"d\":[1,{\"e\":\"]\"}]} , \"n\":null,\"f\":-1.5e3\n}";
    let found: Vec<_> = members(text).map(|m| (m.key.into_owned(), m.value)).collect();
    let expected =
        [("a", "1"), ("b\"", "\"x\\\\\\\"},\""), ("c", "{\"d\":[1,{\"e\":\"]\"}]}"), ("n", "null"), ("f", "-1.5e3")];
    assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value)));
    assert_eq!(members(text).nth(2).unwrap().whole, "\"c\":{\"d\":[1,{\"e\":\"]\"}]}");
    assert_eq!(member("{\"a\":1,\"a\":2}", "a").unwrap().value, "2");
}

#[test]
fn strings_end_where_they_end_whatever_their_length_and_escapes() {
    for length in 0..40 {
        for tail in ["", "\\\\", "\\\"", "\\\\\\\"", "ä", "\u{80}\u{7f}!#["] {
            let string = format!("\"{}{tail}\"", "x".repeat(length));
            let text = format!("{{{string}:{{\"in\":[{string},{string}]}},\"b\":{string}}}");
            let found: Vec<_> = members(&text).map(|m| m.value).collect();
            assert_eq!(found, [&*format!("{{\"in\":[{string},{string}]}}"), &string]);
        }
    }
}

#[test]
fn scanning_a_non_object_or_invalid_json_does_not_panic() {
    for text in [
        "", "1", "[]", "\"a\"", "null", "{}", "{ }", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\\", "{a:1}", "{\"ä\\",
        "}{", "{,",
    ] {
        assert_eq!(members(text).count(), 0, "{text}");
    }
    for text in ["{\"a\":1", "{\"a\":[", "{\"a\":\"ä", "{\"a\":]]", "{\"a\":1 2}", "{\"a\":1,,}", "{\"\\u\":1}"] {
        _ = members(text).count();
    }
}
