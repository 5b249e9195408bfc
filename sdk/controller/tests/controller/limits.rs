//! Concurrency, backoff, deadlines and shutdown.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portcullis::controller::{Action, Backoff};
use portcullis::operator::Switch;
use portcullis_testing::wait_until;
use tokio::sync::Semaphore;

use crate::fixture::{PATIENCE, Place, Running, afloat};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_objects_are_reconciled_at_once_than_the_limit_says() {
    let place = Place::new("limit").await;
    for index in 0..6 {
        place.create(&format!("b{index}"), 2).await;
    }
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (gate, total) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let shared = (now.clone(), most.clone(), gate.clone(), total.clone());
    let running = Running::start(place.controller().concurrency(2), place.runtime(Switch::On), move |_| {
        let (now, most, gate, total) = shared.clone();
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            gate.acquire().await?.forget();
            now.fetch_sub(1, Ordering::SeqCst);
            total.fetch_add(1, Ordering::SeqCst);
            Ok(Action::await_change())
        }
    });
    wait_until("two at once", PATIENCE, || async { (now.load(Ordering::SeqCst) == 2).then_some(()) }).await;
    gate.add_permits(100);
    wait_until("all of them", PATIENCE, || async { (total.load(Ordering::SeqCst) >= 6).then_some(()) }).await;
    assert_eq!(most.load(Ordering::SeqCst), 2);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_or_panicked_reconcile_comes_again_later_and_later() {
    let place = Place::new("backoff").await;
    place.create("b", 2).await;
    let backoff = Backoff { min: Duration::from_millis(100), max: Duration::from_millis(400), ..Backoff::default() };
    let tries = Arc::new(Mutex::new(Vec::new()));
    let sink = tries.clone();
    let running = Running::start(place.controller().backoff(backoff), place.runtime(Switch::On), move |_| {
        let count = {
            let mut tries = sink.lock().unwrap();
            tries.push(Instant::now());
            tries.len()
        };
        async move {
            match count {
                1 => anyhow::bail!("no luck"),
                2 => panic!("none at all"),
                3 | 4 => anyhow::bail!("no luck again"),
                _ => Ok(Action::await_change()),
            }
        }
    });
    wait_until("the fifth try", PATIENCE, || async { (tries.lock().unwrap().len() == 5).then_some(()) }).await;
    running.idle(&place).await;
    let tries = tries.lock().unwrap().clone();
    let pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses.len(), 4, "a success is not repeated");
    for (pause, least) in pauses.iter().zip([100, 200, 400, 400]) {
        assert!(*pause >= Duration::from_millis(least), "{pauses:?}");
    }
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconcile_that_hangs_is_given_up_and_comes_again() {
    let place = Place::new("hangs").await;
    place.create("b", 2).await;
    let first = Arc::new(AtomicUsize::new(0));
    let controller = place.controller().timeout(Duration::from_millis(200));
    let running = Running::start(controller, place.runtime(Switch::On), move |cx| {
        let try_ = first.fetch_add(1, Ordering::SeqCst);
        async move { if try_ == 0 { std::future::pending().await } else { afloat(cx).await } }
    });
    place.until("b", "the second try", |boat| boat.says("Afloat").is_some()).await;
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_finishes_running_reconciles_and_starts_no_other() {
    let place = Place::new("shutdown").await;
    place.create("first", 2).await;
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let shared = (begun.clone(), gate.clone());
    let running = Running::start(place.controller().concurrency(1), place.runtime(Switch::On), move |cx| {
        let (begun, gate) = shared.clone();
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await?.forget();
            afloat(cx).await
        }
    });
    wait_until("it to begin", PATIENCE, || async { (begun.load(Ordering::SeqCst) == 1).then_some(()) }).await;
    place.create("second", 2).await;
    running.stop.cancel();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!running.has_ended(), "a reconcile is under way");
    gate.add_permits(100);
    running.ended().await;
    place.until("first", "its status", |boat| boat.says("Afloat").is_some()).await;
    assert_eq!(begun.load(Ordering::SeqCst), 1, "the second was not begun");
}
