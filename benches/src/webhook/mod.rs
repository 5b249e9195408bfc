//! Webhook servers under the API server's kind of load: one kind in three versions, the reviews that are sent, the client
//! that sends them, and the check of every answer.

pub mod answers;
pub mod bodies;
pub mod client;
pub mod entity;
pub mod figures;
pub mod objects;
pub mod serve;
pub mod servers;
pub mod workload;
