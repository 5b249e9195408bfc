//! The kinds against their contract: `KIND.json` holds every path of a kind's schema with what it says, one path per
//! line, the kind's names and versions, and examples, where those are short. The generated CRDs are compared with it, and then the API server, which has
//! the last word, is asked about objects that keep and that break each of its constraints.

mod api_server;
mod bounds;
mod cases;
mod document;
mod examples;
mod rules;
mod schema;
mod versions;
