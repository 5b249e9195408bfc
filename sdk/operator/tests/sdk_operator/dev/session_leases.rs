//! The Leases that sessions with controllers leave, and who takes them away.

use super::election::{LEADER, Place};
use super::fixture::{controllers_alone, start};
use super::process::{Dev, ENTITIES};

impl Place {
    /// Two sessions, one after the other, that are killed while they lead.
    async fn left_by_two(&self) {
        for _ in 0..2 {
            let mut session = self.session(&[]);
            session.says("Controllers run here: this session holds the Lease").await;
            session.signal("-KILL").await;
            session.ended().await;
        }
        assert_eq!(self.leases(&self.home).await.len(), 1);
    }

    /// A session that only sweeps, until its end.
    async fn sweep(&self) -> String {
        let mut sweep = self.plain(&["--sweep"]);
        assert_eq!(sweep.ended().await.code(), Some(0), "{}", sweep.said());
        sweep.said()
    }

    /// A session without controllers, of another person.
    fn plain(&self, arguments: &[&str]) -> Dev {
        let fixed = ["--namespace", &self.home, "--only-namespace", "nobody-s"];
        start(self.cluster, ENTITIES, "bob", &[&fixed, arguments].concat())
    }
}

// K6
#[tokio::test]
async fn the_lease_that_killed_sessions_left_goes_when_it_has_lapsed() {
    let _alone = controllers_alone().await;
    let place = Place::new().await;
    place.left_by_two().await;
    let said = place.sweep().await;
    let looking = format!("Lease {}/{LEADER}: looking for 3 s whether the session of ann lives", place.home);
    let removed = format!("removed Lease {}/{LEADER}", place.home);
    assert!(said.contains(&looking) && said.contains(&removed), "{said}");
    assert_eq!(place.leases(&place.home).await, []);

    // The next session does it too, while it serves.
    place.left_by_two().await;
    let mut session = place.plain(&[]);
    session.open().await;
    session.says(&removed).await;
    session.end("-TERM").await;
    assert_eq!(place.leases(&place.home).await, []);

    // And one with controllers, which takes it over.
    place.left_by_two().await;
    let mut session = place.session(&[]);
    session.says("Controllers run here: this session holds the Lease").await;
    assert!(session.end("-TERM").await.contains(&removed));
    assert_eq!(place.leases(&place.home).await, []);
}

#[tokio::test]
async fn the_lease_of_a_session_that_lives_is_left() {
    let _alone = controllers_alone().await;
    let place = Place::new().await;
    let mut session = place.session(&[]);
    session.says("Controllers run here: this session holds the Lease").await;
    let before = place.leases(&place.home).await;
    let said = place.sweep().await;
    assert!(said.contains(&format!("left Lease {}/{LEADER}: the session that holds it lives", place.home)), "{said}");
    assert_eq!(place.leases(&place.home).await, before);
    session.end("-TERM").await;
}

// D6
#[tokio::test]
async fn a_lease_that_an_installed_replica_has_taken_over_is_no_sessions_any_more() {
    let _alone = controllers_alone().await;
    let place = Place::new().await;
    place.left_by_two().await;
    let mut installed = place.installed(&[]);
    installed.says("leading: this replica runs the controllers").await;
    assert!(!place.sweep().await.contains("Lease"));
    installed.end("-TERM").await;
    let free = [(LEADER.to_owned(), String::new())];
    assert!(!place.sweep().await.contains("Lease"));
    assert_eq!(place.leases(&place.home).await, free);

    let mut session = place.session(&[]);
    session.says("Controllers run here: this session holds the Lease").await;
    session.end("-TERM").await;
    assert_eq!(place.leases(&place.home).await, free);
    place.left_by_two().await;
    assert!(!place.sweep().await.contains("Lease"), "it knows the epochs of what was written");
    assert_eq!(place.leases(&place.home).await.len(), 1);
}
