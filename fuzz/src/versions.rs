//! The nasty kind in three versions, with converters that lose, reorder, clamp and join whatever they can.

use std::collections::BTreeMap;

use kube_core::{ClusterResourceScope, ObjectMeta, Resource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::nasty::{Item, Nasty, NumberOrText, Source};

pub(crate) const GROUP: &str = "demo.example";

macro_rules! version {
    ($(#[$doc:meta])* $name:ident, $version:literal, $spec:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        pub(crate) struct $name {
            #[serde(default)]
            pub(crate) metadata: ObjectMeta,
            #[serde(default)]
            pub(crate) spec: $spec,
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) status: Option<Value>,
        }

        impl Resource for $name {
            type DynamicType = ();
            type Scope = ClusterResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                "Nasty".into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                "nasties".into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

version!(
    /// The oldest: flat, of few words.
    V1, "v1", Flat
);
version!(
    /// The hub.
    V2, "v2", Nasty
);
version!(
    /// The newest: nested, and strict about what it reads.
    V3, "v3", Nested
);

/// The spec of version 1: it has no order of items, one item per name, and narrower numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Flat {
    #[serde(default)]
    replicas: i32,
    #[serde(default)]
    title: String,
    #[serde(default)]
    words: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    items: BTreeMap<String, Vec<i64>>,
    port: Option<String>,
    ratio: Option<f32>,
}

/// The spec of version 3: fields in other places, and an enum instead of a text.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Nested {
    #[serde(default)]
    scale: Scale,
    title: Option<String>,
    #[serde(default)]
    items: Vec<Item>,
    source: Option<Source>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    kind: Option<Kind>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Scale {
    #[serde(default)]
    replicas: i64,
    limit: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    Small,
    Large,
}

pub(crate) fn v1_to_v2(old: V1) -> V2 {
    let V1 { metadata, spec, status } = old;
    let spec = Nasty {
        replicas: i64::from(spec.replicas),
        title: (!spec.title.is_empty()).then_some(spec.title),
        words: spec.words.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect(),
        items: spec.items.into_iter().map(|(name, values)| Item { name, values }).collect(),
        port: spec.port.map(|port| port.parse().map_or(NumberOrText::Text(port), NumberOrText::Number)),
        ratio: spec.ratio.map(f64::from),
        ..Nasty::default()
    };
    V2 { metadata, spec, status }
}

pub(crate) fn v2_to_v1(new: V2) -> V1 {
    let V2 { metadata, spec, status } = new;
    let spec = Flat {
        replicas: i32::try_from(spec.replicas).unwrap_or(i32::MAX),
        title: spec.title.unwrap_or_default(),
        words: spec.words.join(" "),
        items: spec.items.into_iter().map(|item| (item.name, item.values)).collect(),
        port: spec.port.map(|port| match port {
            NumberOrText::Number(number) => number.to_string(),
            NumberOrText::Text(text) => text,
        }),
        #[allow(clippy::cast_possible_truncation, reason = "this version holds fewer digits: that is the point")]
        ratio: spec.ratio.map(|ratio| ratio as f32).filter(|ratio| ratio.is_finite()),
    };
    V1 { metadata, spec, status }
}

pub(crate) fn v3_to_v2(old: V3) -> V2 {
    let V3 { metadata, spec, status } = old;
    let mut labels = spec.labels;
    labels.extend(spec.kind.map(|kind| ("kind".to_owned(), format!("{kind:?}"))));
    let Scale { replicas, limit } = spec.scale;
    let spec = Nasty {
        replicas,
        limit,
        title: spec.title,
        items: spec.items,
        source: spec.source,
        labels,
        ..Nasty::default()
    };
    V2 { metadata, spec, status }
}

pub(crate) fn v2_to_v3(new: V2) -> V3 {
    let V2 { metadata, spec, status } = new;
    let mut labels = spec.labels;
    let kind = match labels.remove("kind").as_deref() {
        Some("Small") => Some(Kind::Small),
        Some(_) => Some(Kind::Large),
        None => None,
    };
    let scale = Scale { replicas: spec.replicas, limit: spec.limit };
    // An item without a name is dropped: a loss inside of a list.
    let items = spec.items.into_iter().filter(|item| !item.name.is_empty()).collect();
    V3 { metadata, spec: Nested { scale, title: spec.title, items, source: spec.source, labels, kind }, status }
}
