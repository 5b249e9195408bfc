//! The whole way: a manifest through the admission gate, a call through the request gate; and the demo.
