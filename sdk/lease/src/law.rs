//! Laws of [`decide`] that hold whatever a Lease says: a plain function for property tests and fuzzers.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

use crate::Timing;
use crate::decide::{Candidate, Decision, Hold, Reason, decide};
use crate::record::{Observation, Record};
use crate::time::Moment;

/// Reads `body` as a JSON list of observations: a Lease, `null` for none, or a number of milliseconds that pass;
/// decides after each for a candidate and for a holder named `me`. Bodies that are no such list hold nothing.
///
/// # Errors
/// The promise that was broken: that is a defect of this crate.
pub fn decisions_hold(body: &[u8]) -> Result<(), String> {
    let Ok(steps) = serde_json::from_slice::<Vec<serde_json::Value>>(body) else { return Ok(()) };
    let mut observation = Observation::default();
    let mut now = Moment::default();
    for step in steps {
        if let Some(millis) = step.as_u64() {
            now = now + Duration::from_millis(millis);
        } else if step.is_null() {
            observation.see(None, now);
        } else if let Ok(lease) = serde_json::from_value::<Lease>(step) {
            observation.see(Some(Record::from(&lease)), now);
        }
        check(&observation, now).map_err(|broken| format!("{broken} at {now:?} with {observation:?}"))?;
    }
    Ok(())
}

fn check(observation: &Observation, now: Moment) -> Result<(), String> {
    let seen = observation.last().map_or(0, |record| record.transitions);
    let ask = |at, hold| decide(observation, at, &Candidate { identity: "me", timing: Timing::LEADER, hold });

    match ask(now, None) {
        // The API allows no later one.
        Decision::Acquire { epoch } if epoch > seen || epoch == i32::MAX.unsigned_abs() => {}
        Decision::Wait { until } if until > now => {
            let others = observation.last().and_then(|record| record.holder.as_deref()).is_some_and(|it| it != "me");
            require(others, "a candidate waits though no other holds")?;
        }
        other => return Err(format!("a candidate is told {other:?}")),
    }

    let hold = Hold { epoch: 1, since: now, confirmed: now, renew_at: now + Timing::LEADER.renew() };
    let mine = observation.present().is_some_and(|it| it.holder.as_deref() == Some("me") && it.transitions == 1);
    match ask(now, Some(hold)) {
        Decision::Wait { until } if mine && until > now => {}
        Decision::Yield { reason: Reason::Taken | Reason::Gone } if !mine => {}
        other => return Err(format!("a holder is told {other:?}")),
    }
    let end = Moment::since_origin(Duration::MAX);
    if mine && now + Timing::LEADER.deadline() < end {
        let late = now + Timing::LEADER.deadline();
        require(ask(late, Some(hold)) == Decision::Yield { reason: Reason::Late }, "a late holder goes on")?;
    }
    Ok(())
}

fn require(holds: bool, broken: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken.to_owned()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn lease() -> impl Strategy<Value = Value> {
        let holder = prop_oneof![Just(json!("me")), Just(json!("other")), Just(json!("")), Just(Value::Null)];
        let number =
            || prop_oneof![Just(Value::Null), (-1..4_i32).prop_map(Value::from), any::<i32>().prop_map(Value::from)];
        (holder, number(), number(), 0..9_u8, 0..20_u8).prop_map(|(holder, duration, transitions, renewed, version)| {
            json!({
                "metadata": { "resourceVersion": version.to_string() },
                "spec": {
                    "holderIdentity": holder, "leaseDurationSeconds": duration, "leaseTransitions": transitions,
                    "renewTime": format!("202{renewed}-01-01T00:00:00.000000Z"),
                },
            })
        })
    }

    fn steps() -> impl Strategy<Value = Vec<Value>> {
        let time = prop_oneof![(0..40_000_u64).prop_map(Value::from), any::<u64>().prop_map(Value::from)];
        proptest::collection::vec(prop_oneof![3 => lease(), 1 => Just(Value::Null), 2 => time], 0..24)
    }

    proptest! {
        #[test]
        fn whatever_is_seen_the_promises_hold(steps in steps()) {
            prop_assert_eq!(decisions_hold(&serde_json::to_vec(&steps).unwrap()), Ok(()));
        }
    }

    #[test]
    fn what_is_no_list_holds_nothing() {
        for body in [&b""[..], b"{}", b"[1, {\"spec\": 3}, \"x\"", b"\xff"] {
            assert_eq!(decisions_hold(body), Ok(()));
        }
    }
}
