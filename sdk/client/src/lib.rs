//! Helpers for clients of the API server, in addition to kube.
//!
//! | | |
//! |---|---|
//! | [`watched`], [`relist_after_outage`] | watches that list again after an outage of the API server, in case etcd was restored from a backup |
//! | [`own_sentence`] | the message of an error, for a log line or a condition |
//! | [`in_one_line`] | an error with its causes, in one line |
//! | [`plain`] | untrusted text, escaped for a terminal |

mod api_error;
mod relist;
mod terminal;

pub use api_error::{in_one_line, own_sentence};
pub use relist::{relist_after_outage, watched};
pub use terminal::plain;
