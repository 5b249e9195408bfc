//! Conditions, of which each keeps the time of its last change.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portcullis_controller::{ConditionStatus, Conditions};

#[test]
fn a_condition_keeps_its_transition_time_while_its_status_stays() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let mut said: Option<Vec<Condition>> = None;
    let steps = [
        (ConditionStatus::Unknown, 1, ("Unknown", 1)),
        (ConditionStatus::Unknown, 2, ("Unknown", 1)),
        (true.into(), 3, ("True", 3)),
        (ConditionStatus::True, 4, ("True", 3)),
        (false.into(), 5, ("False", 5)),
    ];
    for (status, now, (word, changed)) in steps {
        let mut conditions = Conditions::new(said.as_ref(), Some(1), at(now));
        conditions.set("Ready", status, "Tested", "");
        said = conditions.into_list();
        let condition = &said.as_ref().unwrap()[0];
        assert_eq!((&*condition.status, condition.last_transition_time.0), (word, at(changed)));
    }
}
