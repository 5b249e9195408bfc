//! The middleware chain of the request gate and its webhooks.
