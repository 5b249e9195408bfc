//! Cedar policies decide who may call what on an MCP server: this crate parses them, finds the questions of a message, and decides. No IO, no clock.
//!
//! ```
//! use mcp_authz::{Asks, Caller, ClaimSource, Policies, asks};
//! use mcp_runconfig::CedarConfig;
//! use mcp_wire::Message;
//!
//! let policy = r#"permit(principal in THVGroup::"dev", action == Action::"call_tool", resource == Tool::"echo");"#;
//! let config = CedarConfig { policies: vec![policy.to_owned()], ..CedarConfig::default() };
//! let policies = Policies::parse(&config, "everything").unwrap();
//!
//! let claims = serde_json::json!({"sub": "ann", "groups": ["dev"]});
//! let caller = Caller::new(&policies, claims.as_object().unwrap(), ClaimSource::Request).unwrap();
//! let message = Message::parse_strict(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#).unwrap();
//! let Asks::Questions(questions) = asks(&message) else { panic!("policies decide on calls") };
//! assert_eq!(policies.decide(&caller, &questions[0]), Ok(()));
//! ```
//!
//! # Methods
//!
//! | method | what policies are asked |
//! |---|---|
//! | `tools/call` | `Action::"call_tool"` on `Tool::"NAME"`, with arguments |
//! | `prompts/get` | `Action::"get_prompt"` on `Prompt::"NAME"`, with arguments |
//! | `resources/read`, `resources/subscribe`, `resources/unsubscribe` | `Action::"read_resource"` on `Resource::"URI"` |
//! | `skills/get` | `Action::"get_skill"` on `Skill::"URI"` |
//! | `completion/complete` | as `prompts/get` or `resources/read` of what it refers to, without arguments |
//! | `subscriptions/listen` | as `resources/read` of each resource that it names; without one, nothing |
//! | `tools/list`, `prompts/list`, `resources/list`, `resources/templates/list`, `skills/list` | for each item of the answer the question of its kind, without arguments |
//! | `initialize`, `ping`, `server/discover`, `roots/list`, `logging/setLevel`, `features/list`, and the notifications of MCP but for `notifications/elicitation/complete`, `notifications/tasks` and `notifications/subscriptions/acknowledged` | nothing: they pass |
//! | every other one | nothing: they are refused |
//!
//! # Where decisions differ from ToolHive's
//!
//! Decisions are those of ToolHive v0.63.0, in these as well: numbers are decimals, an error in one policy denies what another one permits, the usual claims
//! of groups count where a token lacks the configured one, a text is no list of groups, and the attributes of a request's entities
//! replace those that the configuration gives them. They differ in this alone:
//!
//! | subject | ToolHive | here | why |
//! |---|---|---|---|
//! | parents that `entities_json` gives to an entity of the request (the caller, the tool, the action) | are lost | count beside those of the request | they are written down to count |
//! | hints of tools | are those of the last page of a list | are kept for each tool, over all pages ([`KnownHints`]) | lists have pages |
//! | two arguments whose names differ only in case | the message is refused before (400) | the call is refused (403) | as messages with such names are let pass elsewhere, here they must not |
//! | a call with more than 1,000 arguments | is judged | is refused | each becomes several values of Cedar's |
//! | arguments of a call that are no object, but for an empty list | count as none | the call is refused | a server may read them, and no policy has seen them |
//! | an argument `x_present` beside one `x` that is no scalar | either one counts as `context.arg_x_present` | that there is an `x` | a caller must not hide it |
//! | a member of a completion's `ref` that is spelt in another case (`Type`) | is read | is none: the call is refused | as other names of MCP are |
//! | an item of a list with an odd member that decides nothing (a description that is a number), or a skill whose URI is empty | the list is withheld | the item is judged as it is | it has one name, and is shown or hidden for that |
//! | an entry of `policies` with a second policy, or another text behind the first one | the first policy counts, and what follows is dropped | is refused | a policy that is written down must not be lost: it may be a forbid |
//! | a comment between `/*` and `*/` | is one | is refused | Cedar's own reading |
//! | a policy with more than 64 brackets in each other, 4,000 operators, or thousands of escapes in a text, and policies of more than 100,000 words and signs together | is taken | is refused | Cedar's parser would end the process |
//! | `entities_json` with a circle, an attribute `__expr`, or an action's parent that is no action | is taken | is refused | Cedar's own reading |
//! | `entities_json` with more than 10,000 entities, 64 levels of parents, or 100,000 pairs of an entity and an ancestor | is taken | is refused | Cedar keeps all ancestors of each |
//! | `entities_json` with an entity that has no `attrs` or no `parents`, or is there twice alike | is refused | is taken | Cedar's own reading |
//! | Cedar's functions: `decimal("+1.0")`, `toDate` and `toTime` before 1970, the shortest `duration` | 1.0; the day after, and a time below zero; an error | an error; the day, and its time; a duration | Cedar's own rules |
//!
//! ToolHive's own code was asked for each decision in `tests/vectors` (`hack/cedar-vectors`), and the tests name each one that differs. A policy decision
//! point is asked the same questions ([`PdpForm`]). To ask it, and lists that cannot be read, are the affair of the proxy's middleware.

mod asks;
mod caller;
mod decide;
mod denial;
mod entities;
mod error;
mod hints;
mod index;
mod pdp;
mod policies;
mod question;
mod reads;
mod shape;
mod uri;
mod value;
mod verdict;

pub use asks::{Asks, asks};
pub use caller::{Caller, ClaimSource};
pub use decide::{Outlook, Outlooks};
pub use denial::Denial;
pub use error::PolicyError;
pub use hints::{Hints, KnownHints};
pub use pdp::PdpForm;
pub use policies::Policies;
pub use question::{Feature, Question};
