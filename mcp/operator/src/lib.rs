//! The operator of the MCP platform: plans the children of workloads and applies them.
//!
//! Every controller is observe → plan → apply, on [`portcullis::controller`]. What all kinds share is apart
//! from what is particular to one:
//!
//! - [`mcp_plan`]: what plans are made of; it knows of no kind;
//! - [`subject`]: what a kind says of itself, and what it refers to;
//! - [`config`], [`workload`]: what all configurations share and what all workloads share, each with one pure plan: the
//!   only place where desired state is derived;
//! - [`kinds`]: what is particular to each kind, a folder and a line of registration each;
//! - [`rights`]: the rights that it needs for that;
//! - [`controllers`]: what is watched and when who is planned; [`admission`]: what authors are told at `kubectl apply`.

pub mod admission;
pub mod config;
pub mod controllers;
mod default_redis;
pub mod kinds;
pub mod registration;
pub mod rights;
pub mod subject;
pub mod workload;
