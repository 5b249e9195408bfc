//! The plans' promises, one module per concern. No IO: every test builds inputs and looks at the plan.

mod additions;
mod audit;
mod authorization;
mod children;
mod children_without_owner;
mod config_plan;
mod contract;
mod external_auth_config;
mod external_auth_data;
mod external_auth_headers;
mod guards;
mod labels;
mod network;
mod oidc_config;
mod policy;
mod rate_limits;
mod refused_pods;
mod remote_proxy;
mod restart;
mod rollout;
mod rules;
mod session_storage;
mod side_doors;
mod status;
mod telemetry_config;
mod tool_config;
mod tried_policies;
mod virtual_mcp_server;
mod webhook_config;
mod webhooks;
mod world;

use crate::support::pem;
