//! What the API server counts of its calls to webhooks.

use super::read::Reader;
use crate::snapshot::{Calls, Look};
use crate::subject::Subject;

const FAIL_OPEN: &str = "apiserver_admission_webhook_fail_open_count";
const DURATIONS: &str = "apiserver_admission_webhook_admission_duration_seconds_bucket";

/// What the API server counted of our webhooks.
pub(super) async fn calls(reader: &Reader, subject: &Subject) -> Option<Look<Calls>> {
    if !subject.is_called() {
        return None;
    }
    let lines = reader.metrics(&[FAIL_OPEN, DURATIONS]).await;
    Some(lines.map(|lines| counted(&lines, subject)))
}

fn counted(lines: &[String], subject: &Subject) -> Calls {
    let mut calls = Calls::default();
    for line in lines {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let label = |name: &str| series.split_once(&format!("{name}=\""))?.1.split_once('"').map(|(value, _)| value);
        let Some(name) = label("name").filter(|name| subject.webhooks.iter().any(|webhook| webhook.name == *name))
        else {
            continue;
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counters are whole and not negative"
        )]
        let Ok(count) = value.parse::<f64>().map(|value| value as u64) else { continue };
        if series.starts_with(FAIL_OPEN) {
            *calls.failed_open.entry(name.to_owned()).or_default() += count;
        } else if let Some(most) = label("le").and_then(|le| le.replace("+Inf", "inf").parse::<f64>().ok()) {
            let buckets = calls.durations.entry(name.to_owned()).or_default();
            // One series for each operation: together they are the webhook's.
            match buckets.iter_mut().find(|(le, _)| le.total_cmp(&most).is_eq()) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((most, count)),
            }
        }
    }
    for buckets in calls.durations.values_mut() {
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    }
    calls
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use portcullis_manifest::{Webhook, WebhookKind};

    use super::*;
    use crate::tests::subject;

    #[test]
    fn counters_of_other_webhooks_and_lines_that_are_none_are_left_out() {
        let mut subject = subject();
        subject.webhooks = vec![Webhook::new("a.b.c", WebhookKind::Validating, "/a", Vec::new())];
        let lines = [
            r#"apiserver_admission_webhook_fail_open_count{name="a.b.c",type="validating"} 3"#,
            r#"apiserver_admission_webhook_fail_open_count{name="x.y.z",type="validating"} 5"#,
            r#"apiserver_admission_webhook_admission_duration_seconds_bucket{name="a.b.c",operation="CREATE",le="+Inf"} 7"#,
            r#"apiserver_admission_webhook_admission_duration_seconds_bucket{name="a.b.c",operation="CREATE",le="0.5"} 4"#,
            r#"apiserver_admission_webhook_admission_duration_seconds_bucket{name="a.b.c",operation="UPDATE",le="0.5"} 2"#,
            "garbage",
        ];
        let calls = counted(&lines.map(str::to_owned), &subject);
        assert_eq!(calls.failed_open, BTreeMap::from([("a.b.c".to_owned(), 3)]));
        assert_eq!(calls.durations["a.b.c"], [(0.5, 6), (f64::INFINITY, 7)]);
    }
}
