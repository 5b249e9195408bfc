//! All that `generate operator` prints, applied as it is to a real API server with its real controllers, gives an
//! operator that works: with each source of certificates, restricted to a namespace, and without webhooks.
//!
//! The one thing that is played is the node: a Pod that the Deployment's controller made is started as a process, with
//! the Pod's own arguments and environment and the rights of its ServiceAccount. As its Service would lead to an address
//! that only a node has, the Service leads to this machine once it was applied.

mod home;
mod modes;
mod pod;
mod secrets;
