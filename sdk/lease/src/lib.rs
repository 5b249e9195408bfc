//! Leases that say who acts.
mod campaign;
mod changes;
mod decide;
mod elector;
mod error;
mod limits;
mod ownership;
mod record;
mod scopes;
mod time;
mod timing;

pub use campaign::{Campaign, CampaignDriver, LeaseHandle, LeaseHealth};
pub use changes::{Change, Changes};
pub use decide::{Candidate, Decision, Hold, Reason, Role, decide};
pub use elector::{Elector, End, Step, Write};
pub use error::LeaseError;
pub use ownership::Ownership;
pub use record::{Epoch, Observation, Record};
pub use scopes::{Claim, ScopeTiming, ScopeView, Scopes, ScopesDriver, ScopesHealth};
pub use time::{Clock, Moment, SystemClock};
pub use timing::Timing;
