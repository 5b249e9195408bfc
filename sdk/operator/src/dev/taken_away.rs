//! Whether a session still has what it put into the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;

use super::cluster::{Cluster, conversion};
use super::session::Opened;
use super::session_mark::SessionMark;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Waits until some of it is the session's no longer, and returns what people are told then.
pub(super) async fn taken_away(cluster: &Cluster, opened: &Opened) -> String {
    let configurations = opened.configurations.iter().map(|(title, _)| title.clone());
    let policies = opened.policies.iter().flatten().cloned();
    let conversions = opened.converting.iter().map(|(crd, _)| conversion(crd));
    let ours: Vec<_> = configurations.chain(policies).chain(conversions).collect();
    let mut gone = false;
    loop {
        sleep(LOOK).await;
        // An API server that does not answer now has taken nothing away.
        let Ok(marks) = cluster.marks().await else { continue };
        match loss(&ours, &marks, &cluster.me) {
            None => gone = false,
            Some(Loss::Taken(said)) => return said,
            Some(Loss::Gone(said)) if gone => return said,
            // Whoever removed it may be about to put in their own.
            Some(Loss::Gone(_)) => gone = true,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Loss {
    Taken(String),
    Gone(String),
}

/// What of `ours` is no longer this session's.
fn loss(ours: &[String], marks: &BTreeMap<String, SessionMark>, me: &SessionMark) -> Option<Loss> {
    let lost = ours.iter().find(|what| marks.get(*what).is_none_or(|mark| mark.session != me.session))?;
    let mut of_owner = marks.values().filter(|mark| mark.owner == me.owner && mark.session != me.session);
    Some(match marks.get(lost).or_else(|| of_owner.next()) {
        Some(other) => Loss::Taken(format!(
            "another session of {} has taken the place of this one, which has lost {lost}; to run both, give one of \
             them --owner NAME",
            other.told()
        )),
        None => Loss::Gone(format!(
            "{lost} is no longer this session's: another session or --sweep of {}, or somebody else, has removed it. \
             To go on, start again; sessions that run beside each other need names of their own: --owner NAME",
            me.owner
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_session_lost_is_said_with_who_has_it_and_what_it_keeps_is_nothing_lost() {
        let mark = |owner: &str, session: &str| SessionMark {
            of: "op".to_owned(),
            owner: owner.to_owned(),
            session: session.to_owned(),
            expires: "2026-01-01T13:00:00Z".parse().ok(),
        };
        let (me, ours) = (mark("ann", "me"), ["A a".to_owned(), "B b".to_owned()]);
        let both = [("A a", mark("ann", "me")), ("B b", mark("ann", "me")), ("A c", mark("ann", "other"))];
        let marks =
            |of: &[(&str, SessionMark)]| of.iter().map(|(what, mark)| ((*what).to_owned(), mark.clone())).collect();
        assert_eq!(loss(&ours, &marks(&both), &me), None);
        for there in [
            // In its place, and about to be.
            &[("A a", mark("ann", "me")), ("B b", mark("ann", "other"))][..],
            &[("A a", mark("ann", "me")), ("A probe", mark("ann", "other"))],
        ] {
            let Some(Loss::Taken(said)) = loss(&ours, &marks(there), &me) else { panic!("{there:?}") };
            assert!(said.contains("of ann (until 2026-01-01T13:00:00Z)"), "{said}");
            assert!(said.contains("lost B b;") && said.contains("--owner NAME"), "{said}");
        }
        for there in [&[("A a", mark("ann", "me"))][..], &[("A a", mark("ann", "me")), ("C c", mark("bob", "other"))]] {
            let Some(Loss::Gone(said)) = loss(&ours, &marks(there), &me) else { panic!("{there:?}") };
            assert!(said.starts_with("B b is no longer") && said.contains("--owner NAME"), "{said}");
        }
    }
}
