//! One cluster-wide operator and restricted ones, and replicas of one, as real processes on one API server: who
//! validates, who writes, and for how long two do or none. MISSION D6, D7; race numbers are those of the guide's
//! coordination by leases.

mod claims;
mod faults;
mod installation;
mod installations;
mod leadership;
mod process;
pub(crate) mod proxy;
mod rest;
mod rights;
mod trace;
mod turn;

use std::time::Duration;

use crate::PATIENCE;

/// Many of these tests take ten to twenty seconds: each fault is a Lease that has to lapse, and a shorter one would
/// lapse whenever a busy machine stalls.
///
/// Duration, deadline, renewal, settling, grace and freshness: a tenth of the real ones or so.
const TIMING: &str = "2s,1400ms,300ms,2400ms,1s,2s";
/// After it, others take over.
const DURATION: Duration = Duration::from_secs(2);
/// The cluster-wide operator waits for so much longer.
const GRACE: Duration = Duration::from_secs(1);
/// For so long what it knows counts.
const FRESHNESS: Duration = Duration::from_secs(2);
/// A new restricted operator begins after it.
const SETTLE: Duration = Duration::from_millis(2400);
/// The time that a busy machine and the measurement add, beside stalls of the machine, which are measured.
const SLACK: Duration = Duration::from_secs(6);
/// A machine that stalls for so long may have let a Lease lapse, which gives another one its turn.
const LAPSE: Duration = Duration::from_millis(600);
