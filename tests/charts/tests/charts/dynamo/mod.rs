//! The chart of the stand-in for Dynamo's webhooks: its templates, its values, and what an API server says to it.

mod cluster;
mod generated;
mod hooks;
mod installed;
mod modes;
mod service;
mod turns;
mod values;

/// A release, and its namespace. Its objects are named after NAME.
const RELEASE: [&str; 2] = ["platform", "platform-system"];
/// What the chart makes of the release's name.
const NAME: &str = "platform-dynamo-operator";
