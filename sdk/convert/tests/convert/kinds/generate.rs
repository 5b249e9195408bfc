//! Objects of the nasty kind, with metadata and members that no type knows.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map as JsonMap, Value, json};

use super::nasty::{Condition, Map, Protocol, Source, v1, v2, v3};

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{1,4}",
        1 => Just(String::new()),
        1 => select(vec!["a/b", "~0~1", "with \"quotes\\\"", "é🦀\u{0}", "/", "a.b[0]", "null", "metadata"])
            .prop_map(str::to_owned),
        1 => "\\PC{0,4}",
    ]
}

fn map() -> impl Strategy<Value = Map> {
    proptest::collection::btree_map(word(), word(), 0..3)
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![select(vec![0.1, 1e300, -0.0, 5e-324, 1.5, 3.0, f64::MAX]), -1e6..1e6]
}

/// Any JSON, lists and maps in each other.
pub fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        select(vec![json!(i64::MIN), json!(i64::MAX), json!(u64::MAX), json!(0)]),
        number().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((word(), inner), 0..3).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn protocol() -> impl Strategy<Value = Option<Protocol>> {
    of(select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp]))
}

fn target() -> impl Strategy<Value = Option<IntOrString>> {
    of(prop_oneof![any::<i32>().prop_map(IntOrString::Int), word().prop_map(IntOrString::String)])
}

fn source() -> impl Strategy<Value = Option<Source>> {
    of(prop_oneof![
        Just(Source::Scratch),
        (word(), of(word())).prop_map(|(name, digest)| Source::Image { name, digest })
    ])
}

fn step() -> impl Strategy<Value = v2::Step> {
    (word(), of(number()), map()).prop_map(|(run, weight, env)| v2::Step { run, weight, env })
}

fn port_v2() -> impl Strategy<Value = v2::Port> {
    (word(), any::<u16>(), protocol(), target()).prop_map(|(name, port, protocol, target_port)| v2::Port {
        name,
        port,
        protocol,
        target_port,
    })
}

fn port_v1() -> impl Strategy<Value = v1::Port> {
    (word(), any::<u16>(), protocol()).prop_map(|(name, port, protocol)| v1::Port { name, port, protocol })
}

fn spec_v1() -> impl Strategy<Value = v1::NastySpec> {
    let address = prop_oneof![word(), (word(), any::<u16>()).prop_map(|(host, port)| format!("{host}:{port}"))];
    let tag = (word(), word()).prop_map(|(key, value)| v1::Tag { key, value });
    let legacy = (of(any::<i64>()), vec(word(), 0..2)).prop_map(|(a, b)| v1::Legacy { a, b });
    (
        (address, -1..3, any::<bool>(), of(word()), vec(tag, 0..3)),
        (vec(port_v1(), 0..3), vec(word(), 0..3), of(word()), of(-1e3_f32..1e3), of(legacy), of(json())),
    )
        .prop_map(|((address, replicas, enabled, note, tags), (ports, steps, zone, ratio, legacy, extra))| {
            let extra = extra.filter(|extra| !extra.is_null());
            v1::NastySpec { address, replicas, enabled, note, tags, ports, steps, zone, ratio, legacy, extra }
        })
}

fn spec_v2() -> impl Strategy<Value = v2::NastySpec> {
    let mode = of(select(vec!["Auto", "Off", "Manual", "Mixed"]).prop_map(str::to_owned));
    let placement = (of(word()), of(any::<i32>())).prop_map(|(zone, weight)| v2::Placement { zone, weight });
    (
        (word(), of(any::<u16>()), 0..4, mode, of(of(word())), of(map()), vec(port_v2(), 0..3)),
        (vec(step(), 0..4), of(placement), source(), of(number()), of(any::<i64>()), of(any::<u64>()), of(json())),
    )
        .prop_map(|((host, port, replicas, mode, note, labels, ports), rest)| {
            let (steps, placement, source, ratio, signed, unsigned, extra) = rest;
            let extra = extra.filter(|extra| !extra.is_null());
            v2::NastySpec {
                host,
                port,
                replicas,
                mode,
                note,
                labels,
                ports,
                steps,
                placement,
                source,
                ratio,
                signed,
                unsigned,
                extra,
            }
        })
}

fn spec_v3() -> impl Strategy<Value = v3::NastySpec> {
    let endpoint =
        (word(), of(any::<u16>()), of(any::<bool>())).prop_map(|(host, port, tls)| v3::Endpoint { host, port, tls });
    (endpoint, of(map()), source(), vec(step(), 0..3), word())
        .prop_map(|(endpoint, labels, source, steps, title)| v3::NastySpec { endpoint, labels, source, steps, title })
}

fn status_v2() -> impl Strategy<Value = v2::Status> {
    let condition = (select(vec!["Ready", "Synced"]), word(), of(word()))
        .prop_map(|(type_, status, message)| Condition { type_: type_.to_owned(), status, message });
    (of(select(vec!["Ready", "Pending", "Failed"]).prop_map(str::to_owned)), vec(condition, 0..3))
        .prop_map(|(phase, conditions)| v2::Status { phase, conditions })
}

/// Generates objects of a version that its type can write.
pub fn typed(version: &'static str) -> BoxedStrategy<Value> {
    let object = move |spec: Value, status: Option<Value>| {
        let mut object = json!({
            "apiVersion": format!("demo.example/{version}"), "kind": "Nasty",
            "metadata": { "name": "n", "namespace": "demo" }, "spec": spec,
        });
        if let Some(status) = status {
            object["status"] = status;
        }
        object
    };
    match version {
        "v1" => (spec_v1(), of(any::<bool>()))
            .prop_map(move |(spec, ready)| object(written(&spec), ready.map(|ready| json!({ "ready": ready }))))
            .boxed(),
        "v2" => (spec_v2(), of(status_v2()))
            .prop_map(move |(spec, status)| object(written(&spec), status.map(|status| written(&status))))
            .boxed(),
        _ => spec_v3().prop_map(move |spec| object(written(&spec), None)).boxed(),
    }
}

fn written(part: &impl serde::Serialize) -> Value {
    // By the text: a value would hold more digits of an f32 than are written.
    serde_json::from_str(&serde_json::to_string(part).unwrap()).unwrap()
}

/// With members that no type knows, put into any of its objects for which `reads` still holds.
pub fn with_unknown(object: Value, unknown: &[(usize, Value)], reads: impl Fn(&Value) -> bool) -> Value {
    let mut object = object;
    for (place, value) in unknown {
        let mut places = Vec::new();
        objects(&object, String::new(), &mut places);
        let mut changed = object.clone();
        let parent = changed.pointer_mut(&places[place % places.len()]).and_then(Value::as_object_mut).unwrap();
        insert(parent, value.clone());
        if reads(&changed) {
            object = changed;
        }
    }
    object
}

fn insert(parent: &mut JsonMap<String, Value>, value: Value) {
    parent.entry(format!("x/unknown~{}", parent.len())).or_insert(value);
}

/// Pointers to all objects of a document but those in its metadata.
fn objects(value: &Value, at: String, places: &mut Vec<String>) {
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(members) => {
            for (key, value) in members.iter().filter(|(key, _)| !at.is_empty() || *key != "metadata") {
                objects(value, format!("{at}/{}", escape(key)), places);
            }
            places.push(at);
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                objects(value, format!("{at}/{index}"), places);
            }
        }
        _ => {}
    }
}
