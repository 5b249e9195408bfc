//! Helpers for clients of the API server, in addition to kube.
//!
//! | | |
//! |---|---|
//! | [`watched`], [`relist_after_outage`] | watches that list again after an outage of the API server, in case etcd was restored from a backup |
//! | [`error_message`] | the message of an error, for a log line or a condition |
//! | [`error_chain`] | an error with its causes, in one line |
//! | [`escape_control`] | untrusted text, escaped for a terminal |

mod api_error;
mod relist;
mod terminal;

pub use api_error::{error_chain, error_message};
pub use relist::{relist_after_outage, watched};
pub use terminal::escape_control;
