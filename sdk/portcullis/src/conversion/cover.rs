//! CRDs and conversions, brought together.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::Conversion;
use crate::webhooks::{RegistrationError, Webhooks};

/// The conversions of `webhooks`, each with its CRD among `crds`.
///
/// # Errors
/// When a conversion has no CRD, or one that has other versions than there are functions for.
pub(crate) fn convertible<'a>(
    webhooks: &Webhooks,
    crds: &'a [CustomResourceDefinition],
) -> Result<Vec<(Conversion, &'a CustomResourceDefinition)>, RegistrationError> {
    let with_crd = |conversion: Conversion| {
        let Conversion { group, kind, engine, .. } = &conversion;
        let Some(crd) = crds.iter().find(|crd| crd.spec.group == *group && crd.spec.names.kind == *kind) else {
            return Err(RegistrationError::NoCrd { group: group.clone(), kind: kind.clone() });
        };
        let versions = crd.spec.versions.iter().map(|version| version.name.as_str());
        engine
            .cover(versions)
            .map_err(|source| RegistrationError::Conversion { kind: kind.clone(), source: source.into() })?;
        Ok((conversion, crd))
    };
    webhooks.conversions()?.into_iter().map(with_crd).collect()
}
