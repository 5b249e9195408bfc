//! The plans' promises, one module per concern. No IO: every test builds inputs and looks at the plan.

mod children;
mod guards;
mod rollout;
mod rules;
mod status;
mod webhook_config;
mod world;
