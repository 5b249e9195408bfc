//! Certificates of the real cert-manager: issued, injected, renewed, while the API server calls.

mod renewal;
