//! Strings and numbers as a schema admits them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::string::string_regex;
use proptest::test_runner::TestRunner;
use serde_json::Value;

/// Characters beyond the least or above nothing, where the schema sets no limit.
const SHORT: usize = 12;

/// Strings of the format, or else of the pattern, or else of any characters; of the right length.
pub(super) fn string(schema: &JSONSchemaProps) -> BoxedStrategy<String> {
    if let Some(formatted) = schema.format.as_deref().and_then(formatted) {
        return formatted;
    }
    let size = |bound: i64| usize::try_from(bound).unwrap_or_default();
    let least = schema.min_length.map_or(0, size);
    let most = schema.max_length.map_or(usize::MAX, size).min(least + SHORT).max(least);
    let longest = schema.max_length.map_or(usize::MAX, size);
    if let Some(matching) = schema.pattern.as_deref().and_then(|pattern| matching(pattern, least, longest)) {
        return matching;
    }
    vec(character(), least..=most).prop_map(|characters| characters.into_iter().collect()).boxed()
}

/// Letters at first, then what breaks naive code: spaces, separators, what JSON escapes, what takes several bytes.
fn character() -> impl Strategy<Value = char> {
    prop_oneof![
        6 => prop::char::range('a', 'z'),
        2 => prop::char::range('0', '9'),
        3 => Just(' '),
        2 => select(vec!['A', '.', '-', '_', '/', ':', ',', '=', '"', '\\', '\n', 'é', '漢', '🙂']),
    ]
}

/// The formats that Kubernetes checks or that types parse, written the way they are written again.
fn formatted(format: &str) -> Option<BoxedStrategy<String>> {
    let date = || (1970..2100_u32, 1..13_u32, 1..29_u32).prop_map(|(y, m, d)| format!("{y:04}-{m:02}-{d:02}"));
    let strategy = match format {
        "date" => date().boxed(),
        "date-time" | "datetime" => (date(), 0..24_u32, 0..60_u32, 0..60_u32)
            .prop_map(|(date, hours, minutes, seconds)| format!("{date}T{hours:02}:{minutes:02}:{seconds:02}Z"))
            .boxed(),
        "byte" => vec(any::<u8>(), 0..8)
            .prop_map(|bytes| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes))
            .boxed(),
        "uuid" | "uuid4" => "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}".boxed(),
        "ipv4" | "ip" => any::<[u8; 4]>().prop_map(|octets| std::net::Ipv4Addr::from(octets).to_string()).boxed(),
        "ipv6" => any::<[u8; 16]>().prop_map(|octets| std::net::Ipv6Addr::from(octets).to_string()).boxed(),
        "cidr" => any::<[u8; 3]>().prop_map(|[a, b, c]| format!("{a}.{b}.{c}.0/24")).boxed(),
        "mac" => "[0-9a-f]{2}(:[0-9a-f]{2}){5}".boxed(),
        "uri" | "url" => "https://[a-z]{1,5}\\.example/[a-z]{0,5}".boxed(),
        "email" => "[a-z]{1,5}@[a-z]{1,5}\\.example".boxed(),
        "hostname" => "[a-z]{1,5}\\.example".boxed(),
        "duration" => (1..60_u32).prop_map(|seconds| format!("{seconds}s")).boxed(),
        _ => return None,
    };
    Some(strategy)
}

/// Strings that match a pattern, if it is one of those that can be turned round; of the right length.
fn matching(pattern: &str, least: usize, most: usize) -> Option<BoxedStrategy<String>> {
    let body = pattern.strip_prefix('^').unwrap_or(pattern);
    let body = body.strip_suffix('$').filter(|body| !body.ends_with('\\')).unwrap_or(body);
    let strategy = string_regex(body).ok()?;
    let fits = move |text: &String| (least..=most).contains(&text.chars().count());
    // The search would take forever if few texts had the right length.
    let mut runner = TestRunner::deterministic();
    let fitting = (0..32).filter(|_| strategy.new_tree(&mut runner).is_ok_and(|tree| fits(&tree.current()))).count();
    (fitting > 8).then(|| strategy.prop_filter("another length", fits).boxed())
}

/// Whole numbers: small ones mostly, the limits now and then.
pub(super) fn integer(schema: &JSONSchemaProps) -> BoxedStrategy<i64> {
    let (lowest, highest) = match schema.format.as_deref() {
        Some("int8") => (i8::MIN.into(), i8::MAX.into()),
        Some("int16") => (i16::MIN.into(), i16::MAX.into()),
        Some("int32") => (i32::MIN.into(), i32::MAX.into()),
        Some("uint8") => (0, u8::MAX.into()),
        Some("uint16") => (0, u16::MAX.into()),
        Some("uint32") => (0, u32::MAX.into()),
        Some("uint" | "uint64") => (0, i64::MAX),
        _ => (i64::MIN, i64::MAX),
    };
    // Bounds are floating point in the schema; the nearest whole number inside of them counts.
    #[allow(clippy::cast_possible_truncation, reason = "saturates, as it should")]
    let whole = |bound: f64| bound as i64;
    let low = schema.minimum.map_or(lowest, |low| whole(low.ceil()).max(lowest));
    let low = if schema.exclusive_minimum == Some(true) { low.saturating_add(1) } else { low };
    let high = schema.maximum.map_or(highest, |high| whole(high.floor()).min(highest));
    let high = if schema.exclusive_maximum == Some(true) { high.saturating_sub(1) } else { high };
    let high = high.max(low);
    let step = schema.multiple_of.map_or(1, whole).max(1);
    let near = 0.clamp(low, high);
    let small = near.saturating_sub(9).max(low)..=near.saturating_add(9).min(high);
    prop_oneof![6 => small, 2 => low..=high, 1 => Just(low), 1 => Just(high)]
        .prop_map(move |number| {
            let multiple = number - number.rem_euclid(step);
            if multiple < low { multiple.saturating_add(step) } else { multiple }
        })
        .boxed()
}

/// Numbers that are the same in single and in double precision.
pub(super) fn number(schema: &JSONSchemaProps) -> BoxedStrategy<Value> {
    let low = schema.minimum.unwrap_or(-1e5).max(-1e5);
    let high = schema.maximum.unwrap_or(1e5).min(1e5).max(low);
    #[allow(clippy::cast_possible_truncation, reason = "within a million")]
    let (from, to) = ((low * 8.0).ceil() as i32, (high * 8.0).floor() as i32);
    let open = (schema.exclusive_minimum == Some(true), schema.exclusive_maximum == Some(true));
    let (from, to) = (from + i32::from(open.0), to - i32::from(open.1));
    if from > to {
        // Nothing with three binary places is in between.
        return Just(Value::from(f64::midpoint(low, high))).boxed();
    }
    (from..=to).prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)).boxed()
}
