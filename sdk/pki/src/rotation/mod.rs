//! The rotation of an authority, without IO and without a clock.
//!
//! All state is in two Secrets: one with the pair that is served and the bundle that is published, one with the
//! authorities. Which authorities are stored determines the phase of a rotation ([`Authorities::phase`]), so that any
//! process can continue it where another one was killed:
//!
//! | phase | stored | published | the leaf is under |
//! |---|---|---|---|
//! | [`Phase::Steady`] | `ca` | `ca` | `ca` |
//! | [`Phase::Publishing`] | `ca`, `next` | both | `ca` |
//! | [`Phase::Draining`] | `ca` (what was `next`), `previous` | both | `previous`, then `ca` |
//! | [`Phase::Steady`] | `ca` | `ca` | `ca` |
//!
//! [`Stored::read`] is the loader: a pure function over the bytes of both Secrets that returns what can be used and
//! what is damaged. [`step`] returns what to do next, from what one process has observed and for how long. Waiting
//! times are measured by the caller, and never the difference of two machines' clocks.

mod anchor;
mod repair;
mod step;
mod stored;

pub use anchor::{Anchor, bundle};
pub use repair::{Repair, next_repair};
pub use step::{Observed, RotationTiming, Step, renewal, step};
pub use stored::{Authorities, CaData, Lost, PairData, Phase, Stored};
