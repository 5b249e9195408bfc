//! The use of a credential's object as the authorization server of a proxy.

use crate::config::{ConfigUse, Words};

/// The field that refers to an authorization server, and the word that pods have for one, whichever field refers to it: a workload may refer
/// to one object there and for its credential, and an object may become one.
pub const AUTH_SERVER: &str = "authServerRef";

/// The words of conditions about it.
const WORDS: Words = Words {
    condition: "AuthServerRefValidated",
    valid: "AuthServerRefValid",
    not_found: "AuthServerRefNotFound",
    not_valid: "AuthServerRefInvalidConfig",
    data_not_found: "AuthServerRefInvalidConfig",
    data_not_valid: "AuthServerRefInvalidConfig",
    bundle: None,
};

/// The same use, as that of an authorization server.
pub fn as_auth_server(used: ConfigUse) -> ConfigUse {
    ConfigUse { words: Some(WORDS), mark: Some(AUTH_SERVER), ..used }
}

/// Whether a use is that of an authorization server.
pub fn is_auth_server(used: &ConfigUse) -> bool {
    used.mark == Some(AUTH_SERVER)
}
