use crate::tries::NoAnswer;

/// Why a migration, or that of one CRD, ended before all objects were in the storage version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// There is nothing to migrate. Pass the CRDs of the operator.
    #[error("no CRD is given, so there is nothing to migrate")]
    NoCrds,
    /// A name in [`Options::kinds`](crate::Options::kinds) means none of the given CRDs. Choose one of `known`.
    #[error("{kind} is none of the given kinds, which are {}", known.join(", "))]
    UnknownKind {
        /// The name.
        kind: String,
        /// The kinds of the given CRDs.
        known: Vec<String>,
    },
    /// The API server refused a request, or did not answer after several retries. Run the migration again once it can.
    #[error("cannot {action}: {reason}")]
    Api {
        /// The attempted action, such as `list the objects`.
        action: String,
        /// The answer of the API server, or the error of the connection to it.
        reason: String,
    },
    /// No version of the CRD is marked as its storage version. Fix the CRD.
    #[error("CRD {crd} has no storage version")]
    NoStorageVersion {
        /// Name of the CRD.
        crd: String,
    },
    /// The CRD serves no version, so its objects cannot be read. Serve one until they are migrated.
    #[error("CRD {crd} serves no version: its objects cannot be read")]
    NotServed {
        /// Name of the CRD.
        crd: String,
    },
    /// The CRD in the cluster has another storage version than it is expected to have. Apply the newer CRD, or choose its
    /// storage version in [`Options::storage_version`](crate::Options::storage_version).
    #[error(
        "CRD {crd} stores objects in {storage} in this cluster, not in {expected}: all of them would be written in \
         {storage}, and the other versions taken out of status.storedVersions"
    )]
    OtherStorageVersion {
        /// Name of the CRD.
        crd: String,
        /// Its storage version in the cluster.
        storage: String,
        /// The version that it has to store in.
        expected: String,
    },
    /// The API server still stores in the previous version, half a minute after the CRD was changed. Run it again.
    #[error("the API server does not store in version {version} yet, though the CRD says so; run it again")]
    NotTakenUp {
        /// The storage version of the CRD.
        version: String,
    },
    /// The API server failed to write many objects, so the rest was not tried. Run it again once it can.
    #[error("the API server could not write {count} objects; the last time it said: {reason}")]
    Unwritable {
        /// The number of failed writes.
        count: usize,
        /// The API server's answer to the last of them.
        reason: String,
    },
    /// The CRD was changed while its objects were written. Run it again.
    #[error("the CRD was changed while its objects were written; run it again")]
    Changed,
}

impl MigrateError {
    /// The attempt to `action` failed.
    pub(crate) fn api(action: impl Into<String>) -> impl FnOnce(NoAnswer) -> Self {
        let action = action.into();
        move |reason| Self::Api { action, reason: reason.to_string() }
    }
}
