//! Quantities as Kubernetes reads them.

use mcp_plan::workload::quantity::parse;
use proptest::prelude::*;

#[test]
fn quantities_are_read_and_what_is_not_one_is_an_error() {
    let one = 1_000_000_000;
    let cases = [
        ("1", one),
        ("500m", one / 2),
        ("1.5", one * 3 / 2),
        (".5", one / 2),
        ("5.", one * 5),
        ("1n", 1),
        ("0.1n", 1),
        ("128Mi", 128 * 1024 * 1024 * one),
        ("0.5Ki", 512 * one),
        ("1e3", 1000 * one),
        ("1E-3", one / 1000),
        ("2E", 2_000_000_000_000_000_000 * one),
        ("1000000P", 1_000_000_000_000_000_000_000 * one),
        ("1073741900", 1_073_741_900 * one),
        ("1Gi", 1_073_741_824 * one),
        ("-1", -one),
        ("+1k", 1000 * one),
        ("0", 0),
        ("000", 0),
    ];
    for (text, value) in cases {
        assert_eq!(parse(text), Ok(value), "{text}");
    }
    for text in ["", "m", "Ki", "1 Gi", "lots", "1GB", "1.2.3", "--1", "1e", "1e1.5", "1mi", "½", "1e99999999999"] {
        assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
    }
    assert!(parse("99999999999999999999999999999999999999999Ei").unwrap_err().contains("too large"));
}

proptest! {
    #[test]
    fn any_text_is_a_quantity_or_an_error_never_a_panic(text in "\\PC{0,20}|[-+0-9.eEmunkMGi]{0,50}") {
        let _ = parse(&text);
    }
}
