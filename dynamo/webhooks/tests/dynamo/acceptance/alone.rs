//! The validators alone.

use dynamo_webhooks::kinds::{
    DynamoComponentDeployment, DynamoGraphDeployment, DynamoGraphDeploymentRequest, DynamoModel,
};
use dynamo_webhooks::rules::{Findings, RuleContext, Rules, check_text};
use serde::de::DeserializeOwned;

use crate::acceptance::cases::{FILES, File, Said, Stage, Vector};

const PLACE: [&str; 2] = ["team-a", "test"];

#[test]
fn the_cases_are_the_rows_of_dynamos_tables_and_some_more() {
    let rows = FILES.map(|name| {
        let file = File::named(name);
        assert_eq!(file.in_tables(), file.rows, "{name}");
        file.rows
    });
    assert_eq!(rows.iter().sum::<usize>(), 64);
}

#[test]
fn the_validators_answer_every_table_row_as_dynamo_does() {
    let [namespace, name] = PLACE;
    let mut wrong = Vec::new();
    for vector in FILES.into_iter().flat_map(|name| File::named(name).vectors()) {
        let said = said(&vector);
        let expected = vector.said_alone(namespace, name);
        // An object that its type cannot hold is refused by the schema.
        let undecodable = said.is_none() && vector.case.stage == Some(Stage::Schema);
        if !undecodable && said.as_ref() != Some(&expected) {
            wrong.push(format!("{} {:?}: {said:?}, not {expected:?}", vector.kind, vector.case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// None where the object is none of its kind.
fn said(vector: &Vector) -> Option<Said> {
    let Findings { error, warnings } = match vector.kind.as_str() {
        "DynamoComponentDeployment" => judged::<DynamoComponentDeployment>(vector),
        "DynamoGraphDeployment" => judged::<DynamoGraphDeployment>(vector),
        "DynamoModel" => judged::<DynamoModel>(vector),
        _ => match &vector.case.text {
            None => judged::<DynamoGraphDeploymentRequest>(vector),
            Some(text) => {
                let (_, object) = vector.objects(PLACE[0], PLACE[1]);
                let request: DynamoGraphDeploymentRequest = serde_json::from_value(object).unwrap();
                Some(check_text(&request.spec, Some(text), &context(vector)))
            }
        },
    }?;
    Some(Said { error, warnings })
}

fn judged<K: Rules + DeserializeOwned>(vector: &Vector) -> Option<Findings> {
    let (old, new) = vector.objects(PLACE[0], PLACE[1]);
    let new: K = serde_json::from_value(new).ok()?;
    let user = vector.case.user.as_deref().unwrap_or("kubernetes-admin");
    Some(match old {
        None => new.check(&context(vector)),
        Some(old) => new.check_update(&serde_json::from_value(old).unwrap(), user, &context(vector)),
    })
}

fn context(vector: &Vector) -> RuleContext {
    let restricted_to = vector.case.restricted.then(|| PLACE[0].to_owned());
    RuleContext { restricted_to, ..RuleContext::default() }
}
