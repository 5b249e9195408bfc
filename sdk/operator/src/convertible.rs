//! The pairs of CRDs and conversions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use portcullis_webhook::conversion::Conversion;
use portcullis_webhook::{RegistrationError, Webhooks};

use super::error::ComponentsError;

/// Returns the conversions of `webhooks`, each with its CRD among `crds`.
///
/// # Errors
/// When a conversion has no CRD, or one whose versions are not those with converters; and when a CRD with versions that
/// differ has no conversion, and does not say itself how it is converted.
pub(super) fn convertible<'a>(
    webhooks: &Webhooks,
    crds: &'a [CustomResourceDefinition],
) -> Result<Vec<(Conversion, &'a CustomResourceDefinition)>, ComponentsError> {
    let with_crd = |conversion: Conversion| {
        let Conversion { group, kind, engine, .. } = &conversion;
        let Some(crd) = crds.iter().find(|crd| crd.spec.group == *group && crd.spec.names.kind == *kind) else {
            return Err(ComponentsError::NoCrd { group: group.clone(), kind: kind.clone() });
        };
        let versions = crd.spec.versions.iter().map(|version| version.name.as_str());
        engine
            .cover(versions)
            .map_err(|source| RegistrationError::Conversion { kind: kind.clone(), source: source.into() })?;
        Ok((conversion, crd))
    };
    let conversions: Vec<_> = webhooks.conversions()?.into_iter().map(with_crd).collect::<Result<_, _>>()?;
    let is_converted = |crd: &CustomResourceDefinition| {
        crd.spec.conversion.is_some() || conversions.iter().any(|(_, converted)| std::ptr::eq(*converted, crd))
    };
    match crds.iter().find(|crd| has_different_schemas(crd) && !is_converted(crd)) {
        Some(crd) => Err(ComponentsError::NoConversion { crd: crd.name_any() }),
        None => Ok(conversions),
    }
}

/// Whether versions that are served have different schemas.
fn has_different_schemas(crd: &CustomResourceDefinition) -> bool {
    let mut schemas = crd.spec.versions.iter().filter(|version| version.served).map(|version| &version.schema);
    schemas.next().is_some_and(|first| schemas.any(|other| other != first))
}

#[cfg(test)]
mod tests {
    use kube::core::crd::merge_crds;
    use kube::{CustomResource, CustomResourceExt as _};
    use portcullis_webhook::conversion::Convert;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;

    macro_rules! version {
        ($module:ident, $version:tt, $kind:tt, $plural:tt) => {
            mod $module {
                use super::*;
                #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
                #[kube(group = "demo.example", version = $version, kind = $kind, plural = $plural, namespaced)]
                pub(super) struct Spec {}
            }
        };
    }
    version!(v1, "v1", "Person", "people");
    version!(v2, "v2", "Person", "people");
    version!(v3, "v3", "Person", "people");
    version!(other, "v1", "Other", "others");

    fn v1_to_v2(_: v1::Person) -> v2::Person {
        v2::Person::new("", v2::Spec {})
    }

    fn v2_to_v1(_: v2::Person) -> v1::Person {
        v1::Person::new("", v1::Spec {})
    }

    fn two() -> Convert<v2::Person> {
        Convert::<v2::Person>::hub().spoke(v1_to_v2, v2_to_v1)
    }

    fn crd(versions: &[&str]) -> CustomResourceDefinition {
        let all = [v1::Person::crd(), v2::Person::crd(), v3::Person::crd()];
        let meant = all.into_iter().filter(|crd| versions.contains(&crd.spec.versions[0].name.as_str()));
        merge_crds(meant.collect(), versions[0]).unwrap()
    }

    #[test]
    fn versions_that_differ_without_a_conversion_are_refused() {
        use serde_json::json;

        let version = |name: &str, served: bool, member: &str| {
            let properties = json!({ member: { "type": "string" } });
            json!({ "name": name, "served": served, "storage": name == "v2",
                "schema": { "openAPIV3Schema": { "type": "object", "properties": properties } } })
        };
        let different = json!([version("v1", true, "a"), version("v2", true, "b")]);
        for (versions, conversion, refused) in [
            (json!([version("v2", true, "a")]), None, false),
            (json!([version("v1", true, "a"), version("v2", true, "a")]), None, false),
            (different.clone(), None, true),
            (different, Some("None"), false),
            (json!([version("v1", false, "a"), version("v2", true, "b")]), None, false),
        ] {
            let names = json!({ "kind": "Person", "plural": "people" });
            let mut crd = json!({ "metadata": { "name": "people.demo.example" },
                "spec": { "group": "demo.example", "scope": "Namespaced", "names": names, "versions": versions } });
            if let Some(strategy) = conversion {
                crd["spec"]["conversion"] = json!({ "strategy": strategy });
            }
            let crds = [serde_json::from_value(crd).unwrap()];
            let error = convertible(&Webhooks::new(), &crds).map(drop).map_err(|error| error.to_string()).err();
            let begin = "people.demo.example has versions with different schemas and no conversion";
            assert_eq!(error.as_ref().is_some_and(|error| error.starts_with(begin)), refused, "{versions}: {error:?}");
        }
    }

    // K3: coverage is proven at start-up.
    #[test]
    fn a_crd_version_without_a_converter_is_refused_with_the_fix() {
        let fit = |convert: Convert<v2::Person>, crds: &[CustomResourceDefinition]| {
            convertible(&Webhooks::new().convert(convert), crds)
                .map(|found| {
                    found
                        .into_iter()
                        .map(|(conversion, crd)| (conversion.path, crd.spec.versions.len()))
                        .collect::<Vec<_>>()
                })
                .map_err(|error| error.to_string())
        };
        assert_eq!(fit(two(), &[other::Other::crd(), crd(&["v1", "v2"])]), Ok(vec![("/convert/people".to_owned(), 2)]));
        let cases = [
            (
                two(),
                vec![crd(&["v1", "v2", "v3"])],
                "conversion of Person: version v3 of Person has no converters; add .spoke() for it or remove it from the CRD",
            ),
            (
                two(),
                vec![crd(&["v2"])],
                "conversion of Person: version v1 of Person has converters, but the CRD lacks it; add it there or remove the converters",
            ),
            (
                two(),
                vec![other::Other::crd()],
                "Person of group demo.example has a conversion, but no CRD: add the CRD to Operator::crds",
            ),
            (
                two().spoke(v1_to_v2, v2_to_v1),
                vec![crd(&["v1", "v2"])],
                "conversion of Person: version v1 of Person is registered twice; register one type for each version",
            ),
        ];
        for (convert, crds, problem) in cases {
            assert_eq!(fit(convert, &crds).unwrap_err(), problem);
        }
    }
}
