//! The rotation of an authority, without IO and without a clock.
//!
//! Two Secrets hold all there is to know: one with the pair that is served and the bundle that is published, one with
//! the authorities. Which authorities are stored says where a rotation stands ([`Authorities::phase`]), so that any
//! process can take it up where another one was killed:
//!
//! | phase | stored | published | the leaf is under |
//! |---|---|---|---|
//! | [`Phase::Steady`] | `ca` | `ca` | `ca` |
//! | [`Phase::Publishing`] | `ca`, `next` | both | `ca` |
//! | [`Phase::Draining`] | `ca` (what was `next`), `previous` | both | `previous`, then `ca` |
//! | [`Phase::Steady`] | `ca` | `ca` | `ca` |
//!
//! [`Stored::read`] is the loader: a pure function over the bytes of both Secrets that says what can be used and what is
//! damaged. [`step`] says what is to be done next, from what one process has seen and for how long. Times of waiting
//! are the caller's own measurements and never the difference of two machines' clocks.

mod anchor;
mod step;
mod stored;

pub use anchor::{Anchor, bundle};
pub use step::{Observed, RotationTiming, Step, step};
pub use stored::{Authorities, CaData, Lost, PairData, Phase, Stored};
