//! An operator: a kind, a rule for it, and a controller.

pub mod controller;
pub mod rules;
pub mod v1;
