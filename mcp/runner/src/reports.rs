//! Answers to scrapers. A long report of metrics is in memory a few times at most, however many scrapers do not read theirs.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use mcp_http::{Body, full};

/// A longer report is long: to make one takes a while.
const LONG: usize = 64 << 10;
/// The time for which a long report is served again.
const AGAIN: Duration = Duration::from_secs(1);
/// Long reports that may be on their way to scrapers.
const UNREAD: usize = 3;

/// The long reports that one listener serves.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Vec<Report>>);

#[derive(Debug)]
struct Report {
    text: Bytes,
    made: Instant,
}

impl Reports {
    /// Answers a scraper; `make` makes the report of now. `None` while scrapers that do not read hold all that there may be.
    pub(crate) fn answer(&self, make: impl FnOnce() -> String) -> Option<Response<Body>> {
        let mut response = Response::new(full(self.text(make)?));
        let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        Some(response)
    }

    fn text(&self, make: impl FnOnce() -> String) -> Option<Bytes> {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = reports.last().filter(|last| last.made.elapsed() < AGAIN) {
            return Some(last.text.clone());
        }
        reports.retain(|report| !report.text.is_unique());
        if reports.len() >= UNREAD {
            return None;
        }
        let text = Bytes::from(make().into_boxed_str().into_boxed_bytes());
        if text.len() > LONG {
            reports.push(Report { text: text.clone(), made: Instant::now() });
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets so much time pass for the reports.
    fn pass(reports: &Reports, time: Duration) {
        for report in &mut *reports.0.lock().unwrap() {
            report.made = report.made.checked_sub(time).unwrap();
        }
    }

    #[test]
    fn a_long_report_is_shared_and_a_short_one_is_of_now() {
        let reports = Reports::default();
        let (short, long) = (|| "a".to_owned(), || "b".repeat(LONG + 1));
        let made = reports.text(long).unwrap();
        assert_eq!(reports.text(short).unwrap().as_ptr(), made.as_ptr());
        pass(&reports, AGAIN);
        assert_eq!([reports.text(short).unwrap(), reports.text(|| "c".to_owned()).unwrap()], ["a", "c"]);
    }

    #[test]
    fn reports_that_nobody_reads_are_a_few() {
        let reports = Reports::default();
        let make = || "b".repeat(LONG + 1);
        let mut unread = Vec::new();
        for _ in 0..UNREAD {
            unread.push(reports.text(make).unwrap());
            pass(&reports, AGAIN);
        }
        assert!(reports.answer(make).is_none());
        unread.pop();
        assert!(reports.text(make).is_some(), "one was read");
    }
}
