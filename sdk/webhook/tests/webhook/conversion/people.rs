//! The kind of these tests, in three versions. Each test has a group of its own, and so a CRD of its own.

/// A module with the versions of kind `Person` in this group, and their conversion.
///
/// Each version can say something that another cannot: `v1` has the whole name alone, `v3` nicknames; and `spec.extra`
/// admits members that no type knows.
macro_rules! people {
    ($module:ident, $group:tt) => {
        #[allow(dead_code, reason = "not every test reads every member")]
        pub(crate) mod $module {
            use kube::core::crd::merge_crds;
            use kube::{CustomResource, CustomResourceExt as _};
            use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
            use portcullis::conversion::Convert;
            use schemars::JsonSchema;
            use serde::{Deserialize, Serialize};

            #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
            #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
            pub(crate) struct Extra {}

            pub(crate) mod v1 {
                use super::*;
                #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
                #[kube(group = $group, version = "v1", kind = "Person", plural = "people", namespaced, status = "super::Status")]
                pub(crate) struct PersonSpec {
                    pub(crate) name: String,
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub(crate) extra: Option<Extra>,
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub(crate) notes: Option<String>,
                }
            }

            pub(crate) mod v2 {
                use super::*;
                #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
                #[kube(group = $group, version = "v2", kind = "Person", plural = "people", namespaced, status = "super::Status")]
                #[serde(rename_all = "camelCase")]
                pub(crate) struct PersonSpec {
                    pub(crate) first_name: String,
                    #[serde(default, skip_serializing_if = "String::is_empty")]
                    pub(crate) last_name: String,
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub(crate) extra: Option<Extra>,
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub(crate) notes: Option<String>,
                }
            }

            pub(crate) mod v3 {
                use super::*;
                #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
                #[kube(group = $group, version = "v3", kind = "Person", plural = "people", namespaced, status = "super::Status")]
                pub(crate) struct PersonSpec {
                    pub(crate) first: String,
                    #[serde(default, skip_serializing_if = "String::is_empty")]
                    pub(crate) last: String,
                    #[serde(default, skip_serializing_if = "Vec::is_empty")]
                    pub(crate) nicknames: Vec<String>,
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub(crate) extra: Option<Extra>,
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub(crate) notes: Option<String>,
                }
            }

            #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
            pub(crate) struct Status {
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub(crate) seen: Option<i64>,
            }

            pub(crate) fn v1_to_v3(old: v1::Person) -> v3::Person {
                assert!(old.spec.name != "panic", "the converter met a value that nobody may read in a log");
                let (first, last) = old.spec.name.rsplit_once(' ').unwrap_or((&old.spec.name, ""));
                let (first, last) = (first.to_owned(), last.to_owned());
                let (extra, notes) = (old.spec.extra, old.spec.notes);
                let spec = v3::PersonSpec { first, last, nicknames: Vec::new(), extra, notes };
                v3::Person { metadata: Default::default(), spec, status: old.status }
            }

            pub(crate) fn v3_to_v1(new: v3::Person) -> v1::Person {
                let v3::PersonSpec { first, last, extra, notes, .. } = new.spec;
                let name = if last.is_empty() { first } else { format!("{first} {last}") };
                v1::Person { metadata: Default::default(), spec: v1::PersonSpec { name, extra, notes }, status: new.status }
            }

            pub(crate) fn v2_to_v3(old: v2::Person) -> v3::Person {
                let v2::PersonSpec { first_name: first, last_name: last, extra, notes } = old.spec;
                let spec = v3::PersonSpec { first, last, nicknames: Vec::new(), extra, notes };
                v3::Person { metadata: Default::default(), spec, status: old.status }
            }

            pub(crate) fn v3_to_v2(new: v3::Person) -> v2::Person {
                let v3::PersonSpec { first: first_name, last: last_name, extra, notes, .. } = new.spec;
                let spec = v2::PersonSpec { first_name, last_name, extra, notes };
                v2::Person { metadata: Default::default(), spec, status: new.status }
            }

            pub(crate) fn convert() -> Convert<v3::Person> {
                Convert::<v3::Person>::hub().spoke(v1_to_v3, v3_to_v1).spoke(v2_to_v3, v3_to_v2)
            }

            /// The CRD, with objects stored in this version.
            pub(crate) fn crd(storage: &str) -> CustomResourceDefinition {
                merge_crds(vec![v1::Person::crd(), v2::Person::crd(), v3::Person::crd()], storage).unwrap()
            }
        }
    };
}
