//! The parts of a workload of any kind: a proxy that clients call, the path to its backend, and its state by its pods.
//!
//! The trait of the kinds, and the plan that decides which children there are, are the operator's.
//!
//! Children hold only what the operator wants to own: no defaults, nothing taken from a fetched object, maps sorted.

pub mod access;
pub mod backend;
mod child;
pub mod detached;
mod document;
pub mod names;
pub mod network;
pub mod overrides;
mod owner;
pub mod pod_template;
pub mod proxy;
pub mod proxy_template;
pub mod quantity;
mod side_door;
pub mod status;

pub use child::{Child, ChildKind, ChildRef};
pub use document::{Document, workload_labels};
pub use owner::{Owner, merged, some};
pub use side_door::{Opened, Ways};
pub use status::{Phase, Previous, Report};
