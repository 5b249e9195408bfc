//! Which client gives a place, and when.

use super::*;

/// Places of clients, by what each can give: `n` never asked, `i` idle, `s` a stream, `S` a session, `-` at work; and
/// which one gives way.
#[test]
fn the_client_that_holds_most_gives_what_it_needs_least() {
    let now = Instant::now() + Duration::from_hours(1);
    for (places, gives) in [
        // The oldest of the larger one, and none of the smaller one, which is older still.
        (&[(1, 'i', 9), (2, 'i', 3), (2, 'i', 5)][..], Some(2)),
        (&[(1, 'n', 9), (2, 'i', 3), (2, '-', 5)], Some(1)),
        // One that never asked goes before one that is older.
        (&[(1, 'i', 9), (1, 'n', 3), (1, 'n', 5)], Some(2)),
        // A client without anything to give is passed over, however much it holds.
        (&[(1, '-', 9), (1, '-', 9), (2, 'i', 3)], Some(2)),
        (&[(1, '-', 9), (2, '-', 9)], None),
        // Idle connections first, then the oldest stream, and a session last: of the one that holds most.
        (&[(1, 's', 9), (1, 'i', 3), (1, 'S', 9), (2, 'i', 9)], Some(1)),
        (&[(1, 'S', 9), (1, 's', 3), (1, 's', 4), (2, 'i', 9)], Some(2)),
        (&[(1, 'S', 3), (1, 'S', 4), (1, '-', 9), (2, 's', 9)], Some(1)),
        // A client below its share keeps its streams, and no idle connection.
        (&[(1, '-', 3), (1, '-', 4), (1, '-', 9), (2, 's', 9)], None),
        (&[(1, '-', 3), (1, '-', 4), (1, '-', 9), (2, 's', 9), (2, 'i', 1)], Some(4)),
    ] {
        let idle = |age| Age::Idle(now - Duration::from_secs(age));
        let gift = |kind: char, age: u64| match kind {
            'n' => Some((Given::Idle, false, idle(age))),
            'i' => Some((Given::Idle, true, idle(age))),
            's' => Some((Given::Stream, true, Age::Stream(10 - age))),
            'S' => Some((Given::Session, true, Age::Stream(10 - age))),
            _ => None,
        };
        let all = places.iter().enumerate().map(|(at, (client, kind, age))| (*client, 1, gift(*kind, *age), at));
        assert_eq!(giver(all).map(|(_, at)| at), gives, "{places:?}");
    }
}

fn take(places: &Places, peer: &str, count: usize) -> Vec<Taken> {
    (0..count).map(|_| places.take(peer.parse().unwrap(), false)).collect()
}

fn elsewhere() -> SocketAddr {
    ([10, 9, 9, 9], 1).into()
}

fn asked(places: &[Taken]) -> Vec<bool> {
    places.iter().map(|place| place.place.0.connection.told() == Told::Leave).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_has_its_moment_and_then_one_leaves_at_a_time() {
    let places = Places::new(8, 100);
    let all = take(&places, "10.0.0.1:1", 3);
    assert!(places.give(elsewhere()), "they are waited for");
    assert_eq!(asked(&all), [false; 3]);
    tokio::time::advance(MOMENT).await;
    for _ in 0..2 {
        assert!(places.give(elsewhere()));
        assert_eq!(asked(&all), [true, false, false]);
    }
    tokio::time::advance(MOMENT).await;
    assert!(places.give(elsewhere()), "one that stays is not waited for");
    assert_eq!(asked(&all), [true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_told_to_leave_and_stays_is_closed() {
    let places = Places::new(8, 100);
    let all = take(&places, "10.0.0.1:1", 6);
    tokio::time::advance(MOMENT).await;
    let told = |what: Told| all.iter().filter(|place| place.place.0.connection.told() == what).count();
    for count in 1..=LEAVING {
        assert!(places.give(elsewhere()), "{count}");
        tokio::time::advance(MOMENT).await;
    }
    assert!(!places.give(elsewhere()), "so many that are leaving are not waited for");
    assert_eq!((told(Told::Leave), told(Told::Close)), (LEAVING + 1, 0));
    tokio::time::advance(LEAVES).await;
    places.give(elsewhere());
    assert_eq!((told(Told::Leave), told(Told::Close)), (1, LEAVING + 1));
}

#[tokio::test(start_paused = true)]
async fn reserved_places_are_left_together_and_never_waited_for() {
    let places = Places::new(8, 100);
    let reserved: Vec<_> = (0..3).map(|_| places.take(([10, 0, 0, 2], 1).into(), true)).collect();
    tokio::time::advance(MOMENT).await;
    assert!(!places.give(elsewhere()));
    assert_eq!(asked(&reserved), [false; 3]);
    places.give_reserved();
    assert_eq!(asked(&reserved), [true; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_one_client_leaves_the_reserved_places_at_once() {
    let places = Places::new(8, 100);
    let crowd: Vec<_> = (0..2).map(|_| places.take(([10, 0, 0, 2], 1).into(), true)).collect();
    let probe = [places.take(([10, 0, 0, 3], 1).into(), true)];
    places.give_reserved();
    assert_eq!((asked(&crowd), asked(&probe)), (vec![true, false], vec![false]));
}

#[tokio::test(start_paused = true)]
async fn addresses_of_one_ipv6_network_count_together() {
    let places = Places::new(8, 100);
    let other = take(&places, "[2001:db8:0:2::1]:1", 1);
    let one: Vec<_> =
        ["1", "2"].iter().flat_map(|host| take(&places, &format!("[2001:db8:0:1::{host}]:1"), 1)).collect();
    tokio::time::advance(MOMENT).await;
    places.give(elsewhere());
    assert_eq!((asked(&other), asked(&one)), (vec![false], vec![true, false]));
}

#[tokio::test]
async fn the_client_whose_heads_hold_most_loses_its_longest() {
    let places = Places::new(8, 100);
    let (one, other) = (take(&places, "10.0.0.1:1", 3), take(&places, "10.0.0.2:1", 2));
    for (place, bytes) in [(&one[0], 20), (&one[1], 30), (&one[2], 10), (&other[0], 40)] {
        place.place.holds_head(bytes);
    }
    assert_eq!((asked(&one), asked(&other)), (vec![false; 3], vec![false; 2]));
    other[1].place.holds_head(1);
    assert_eq!((asked(&one), asked(&other)), (vec![false, true, false], vec![false; 2]));
    let bytes = || {
        let state = places.state();
        (state.head_bytes, state.head_bytes_going)
    };
    assert_eq!(bytes(), (101, 30));
    // Until that has gone another client waits, and one that holds most ends.
    assert_eq!(one[1].place.holds_head(31), Room::Never);
    assert_eq!((one[0].place.holds_head(21), other[0].place.holds_head(41)), (Room::Later, Room::Never));
    assert_eq!(bytes(), (104, 72));
    drop(one);
    assert_eq!((other[1].place.holds_head(3), bytes()), (Room::Now, (44, 41)));
    drop(other);
    assert_eq!(bytes(), (0, 0));
}

#[tokio::test]
async fn a_head_counts_while_its_connection_keeps_the_buffer() {
    let places = Places::new(8, 100);
    let (one, other) = (take(&places, "10.0.0.1:1", 2), take(&places, "10.0.0.2:1", 1));
    for place in &one {
        place.place.holds_head(45);
        place.place.has_head();
    }
    assert_eq!(other[0].place.holds_head(30), Room::Later);
    assert_eq!(asked(&one).iter().filter(|asked| **asked).count(), 1);
    drop(one);
    assert_eq!(other[0].place.holds_head(30), Room::Now);
}
