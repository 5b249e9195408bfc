//! What every client of the API server in an operator needs, and kube leaves to it.
//!
//! | | |
//! |---|---|
//! | [`watched`], [`begun_anew`] | watches that list again when the API server was away, since etcd may have been restored meanwhile |
//! | [`Pauses`] | between tries that fail |
//! | [`own_sentence`] | what an error says by itself, for a log line or a condition |
//! | [`plain`] | text of others, safe for a terminal |

mod api_error;
mod pauses;
mod relist;
mod terminal;

pub use api_error::own_sentence;
pub use pauses::Pauses;
pub use relist::{begun_anew, watched};
pub use terminal::plain;
