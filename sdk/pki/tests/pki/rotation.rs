//! The rotation, step by step and from every state in which it can be left.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use portcullis_pki::rotation::{
    Anchor, Authorities, CaData, Observed, PairData, Phase, Repair, RotationTiming, Step, Stored, renewal, step,
};
use portcullis_pki::{Ca, CertificateParams, Pair, Usage};

const DAY: SignedDuration = SignedDuration::from_hours(24);
const LONG: Duration = Duration::from_hours(2);

fn day(n: i32) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + DAY * n
}

fn names() -> Vec<String> {
    vec!["hooks.team.svc".to_owned()]
}

fn ca(from: i32, to: i32) -> Ca {
    Ca::generate("hooks ca", day(from), day(to)).unwrap()
}

fn leaf(ca: &Ca, from: i32, to: i32) -> Pair {
    ca.issue(&CertificateParams {
        common_name: "hooks",
        organizations: &[],
        dns_names: &names(),
        ip_addresses: &[],
        not_before: day(from),
        not_after: day(to),
        usage: Usage::Server,
    })
    .unwrap()
}

/// Both Secrets.
#[derive(Clone, Default)]
struct Secrets {
    ca: [Option<String>; 5],
    pair: [Option<String>; 3],
}

impl Secrets {
    fn of(authorities: &Authorities, pair: &Pair) -> Self {
        let Authorities { current, next, previous, .. } = authorities;
        let pem = |ca: &Ca| (Some(ca.cert_pem().to_owned()), Some(ca.key_pem().to_owned()));
        let ((crt, key), (next_crt, next_key)) = (pem(current), next.as_ref().map(pem).unwrap_or_default());
        let previous = previous.iter().map(Anchor::pem).reduce(|all, pem| all + &pem);
        let pair = [pair.cert_pem.clone(), pair.key_pem.clone(), authorities.bundle()].map(Some);
        Self { ca: [crt, key, next_crt, next_key, previous], pair }
    }

    fn read(&self, now: Timestamp) -> Stored {
        let [ca_crt, ca_key, next_crt, next_key, previous_crt] =
            self.ca.each_ref().map(|v| v.as_ref().map(String::as_bytes));
        let [tls_crt, tls_key, ca_bundle] = self.pair.each_ref().map(|v| v.as_ref().map(String::as_bytes));
        let ca = CaData { ca_crt, ca_key, next_crt, next_key, previous_crt };
        Stored::read(&ca, &PairData { tls_crt, tls_key, ca_crt: ca_bundle }, &names(), now)
    }
}

fn next_step(authorities: &Authorities, pair: &Pair, observed: Observed, now: Timestamp) -> Step {
    let leaf = portcullis_pki::Certificate::from_pem(pair.cert_pem.as_bytes()).unwrap();
    step(authorities, pair.cert_pem.as_bytes(), &leaf, &RotationTiming::default(), observed, now)
}

const SEEN: Observed = Observed { published_for: Some(LONG), unchanged_for: LONG };
const UNSEEN: Observed = Observed { published_for: None, unchanged_for: LONG };

// Where no check follows before the next upgrade.
#[test]
fn a_leaf_is_renewed_under_an_authority_that_outlives_it() {
    let timing = RotationTiming { leaf_validity: DAY * 3650, ..RotationTiming::default() };
    // The last days of the authority and of its leaf, from day 0 on; whether the next authority is stored.
    for (ca_ends, leaf_ends, next, expected) in [
        (7700, 31, false, Step::Wait(None)),
        (7700, 30, false, Step::Issue),
        (3651, 5, false, Step::Issue),
        (3650, 5, false, Step::MakeNext),
        (3650, 5, true, Step::Promote),
        (20, 20, false, Step::MakeNext),
        // It is kept, although the authority will not do for another one.
        (40, 40, false, Step::Wait(None)),
    ] {
        let current = ca(-1, ca_ends);
        let pair = leaf(&current, -1, leaf_ends);
        let mut authorities = Authorities::new(current, Vec::new());
        authorities.next = next.then(|| ca(-1, 8000));
        let leaf = portcullis_pki::Certificate::from_pem(pair.cert_pem.as_bytes()).unwrap();
        assert_eq!(renewal(&authorities, &leaf, &timing, day(0)), expected, "{ca_ends} {leaf_ends} {next}");
    }
}

// D3: each step follows from what is stored; nothing is issued under what is not published.
#[test]
fn callers_trust_the_served_leaf_in_every_rotation_phase() {
    let first = ca(0, 3650);
    let mut pair = leaf(&first, 3000, 3365);
    let mut authorities = Authorities::new(first, Vec::new());
    let now = day(3300);
    let trusted = |authorities: &Authorities, pair: &Pair| {
        let stored = Secrets::of(authorities, pair).read(now);
        assert!(stored.leaf.is_ok() && stored.damage.is_empty() && stored.publishes_all, "{stored:?}");
    };
    assert_eq!((authorities.phase(), next_step(&authorities, &pair, UNSEEN, now)), (Phase::Steady, Step::MakeNext));
    authorities.next = Some(ca(3300, 3300 + 3650));
    trusted(&authorities, &pair);
    assert_eq!(
        (authorities.phase(), next_step(&authorities, &pair, UNSEEN, now)),
        (Phase::Publishing, Step::Wait(None))
    );
    let minute = Observed { published_for: Some(Duration::from_mins(1)), ..SEEN };
    assert_eq!(next_step(&authorities, &pair, minute, now), Step::Wait(Some(Duration::from_mins(1))));
    assert_eq!(next_step(&authorities, &pair, SEEN, now), Step::Promote);

    let published = authorities.bundle();
    authorities.promote();
    assert_eq!(authorities.bundle(), published, "the bundle is the same, byte for byte");
    trusted(&authorities, &pair);
    assert_eq!((authorities.phase(), next_step(&authorities, &pair, UNSEEN, now)), (Phase::Draining, Step::Wait(None)));
    assert_eq!(next_step(&authorities, &pair, SEEN, now), Step::Issue);
    pair = leaf(&authorities.current, 3300, 3665);
    trusted(&authorities, &pair);
    let fresh = Observed { unchanged_for: Duration::from_mins(20), ..SEEN };
    assert_eq!(next_step(&authorities, &pair, fresh, now), Step::Wait(Some(Duration::from_mins(40))));
    assert_eq!(next_step(&authorities, &pair, SEEN, now), Step::Forget);
    authorities.previous.clear();
    trusted(&authorities, &pair);
    assert_eq!((authorities.phase(), next_step(&authorities, &pair, SEEN, now)), (Phase::Steady, Step::Wait(None)));
}

// A process that has not seen the bundle everywhere still serves under the previous authority.
#[test]
fn an_authority_is_kept_until_every_process_serves_the_next() {
    let (first, second) = (ca(0, 3650), ca(1, 3650));
    let pair = leaf(&second, 1, 365);
    let authorities = Authorities::new(second, vec![Anchor::from(&first)]);
    let after = |seen: Option<Duration>| {
        next_step(&authorities, &pair, Observed { published_for: seen, unchanged_for: LONG }, day(5))
    };
    assert_eq!(after(None), Step::Wait(None));
    let settle = RotationTiming::default().settle;
    assert_eq!(after(Some(settle)), Step::Wait(Some(settle / 4)));
    assert_eq!(after(Some(settle * 2)), Step::Forget);
}

// The one that stands behind what is served is older than all that were made and lost since.
#[test]
fn rotation_timing_is_validated() {
    let (usual, hours) = (RotationTiming::default(), SignedDuration::from_hours);
    usual.check().unwrap();
    RotationTiming { leaf_validity: hours(2), leaf_left: hours(1), ..usual.clone() }.check().unwrap();
    for (timing, said) in [
        (
            RotationTiming { leaf_validity: hours(2), leaf_left: hours(2), ..usual.clone() },
            "leaf_validity (2h) must be longer than leaf_left (2h): what is made would be replaced at once, for ever",
        ),
        (
            RotationTiming { ca_validity: hours(48), ca_left: hours(72), ..usual.clone() },
            "ca_validity (48h) must be longer than ca_left (72h): what is made would be replaced at once, for ever",
        ),
    ] {
        assert_eq!(timing.check().unwrap_err().to_string(), said);
    }
}

#[test]
fn of_too_many_authorities_those_stay_that_are_named_now() {
    let anchors: Vec<Anchor> = (0..9).map(|n| Anchor::from(&ca(0, 3650 + n))).collect();
    let mut authorities = Authorities::new(ca(0, 3700), anchors.clone());
    let first = |n: usize| authorities.previous.contains(&anchors[n]);
    assert_eq!((first(0), first(3), first(4), authorities.previous.len()), (true, true, false, 4));
    assert!(authorities.trust(vec![anchors[8].clone()]));
    assert!(authorities.previous.contains(&anchors[8]) && authorities.previous.len() == 4);
    assert!(!authorities.trust(vec![anchors[8].clone()]), "it is no news");
    // As young as the others, it is no news either.
    let twins: Vec<Anchor> = (0..3).map(|_| Anchor::from(&ca(0, 3650))).collect();
    let mut authorities = Authorities::new(ca(0, 3700), twins.clone());
    assert!(twins.into_iter().all(|twin| !authorities.trust(vec![twin])));
}

#[test]
fn an_expiring_leaf_is_replaced_if_a_new_one_lasts_longer() {
    let long = Authorities::new(ca(0, 3650), Vec::new());
    assert_eq!(next_step(&long, &leaf(&long.current, 0, 365), UNSEEN, day(336)), Step::Issue);
    assert_eq!(next_step(&long, &leaf(&long.current, 0, 365), UNSEEN, day(330)), Step::Wait(None));
    let short = Authorities::new(ca(0, 20), Vec::new());
    assert_eq!(next_step(&short, &leaf(&short.current, 0, 20), UNSEEN, day(1)), Step::MakeNext);
}

// Callers may not know the new one yet, and the old leaf is still good.
#[test]
fn a_leaf_under_the_authority_before_is_not_replaced_in_haste() {
    let (first, second) = (ca(0, 3650), ca(1, 3650));
    let pair = leaf(&first, 0, 365);
    let authorities = Authorities::new(second, vec![Anchor::from(&first)]);
    assert_eq!(next_step(&authorities, &pair, UNSEEN, day(364)), Step::Wait(None));
    assert_eq!(next_step(&authorities, &pair, SEEN, day(364)), Step::Issue);
}

// A rotation that was interrupted goes on, and a damaged part is reported and left out.
#[test]
fn damage_to_one_part_leaves_the_others_in_use() {
    let (first, second) = (ca(0, 3650), ca(1, 3650));
    let (old, expired) = (Anchor::from(&ca(-9, 3650)), Anchor::from(&ca(-9, -1)));
    let pair = leaf(&first, 0, 365);
    let mut whole = Authorities::new(first, vec![old.clone()]);
    whole.next = Some(second);
    let sound = Secrets::of(&whole, &pair);
    let read = |change: &dyn Fn(&mut Secrets)| {
        let mut secrets = sound.clone();
        change(&mut secrets);
        secrets.read(day(5))
    };
    let phase = |stored: &Stored| stored.authorities.as_ref().map(Authorities::phase).ok();

    let stored = read(&|_| ());
    assert!((phase(&stored), stored.damage.len()) == (Some(Phase::Publishing), 0) && stored.leaf.is_ok(), "{stored:?}");
    // A next authority that cannot issue is no next authority.
    for damage in [None, Some(String::new()), Some("garbage".to_owned()), sound.ca[1].clone()] {
        let stored = read(&|secrets| secrets.ca[3].clone_from(&damage));
        assert!(
            (phase(&stored), stored.damage.len()) == (Some(Phase::Draining), 1) && stored.leaf.is_ok(),
            "{stored:?}"
        );
    }
    // Where the current one is lost, the next one replaces it, and its certificate stays trusted.
    let stored = read(&|secrets| secrets.ca[1] = Some(String::new()));
    assert!(phase(&stored) == Some(Phase::Draining) && !stored.damage.is_empty() && stored.leaf.is_ok(), "{stored:?}");
    assert_eq!(stored.authorities.unwrap().anchors().len(), 3);
    // Where both are lost, the error has what is known of them.
    let stored = read(&|secrets| (secrets.ca[1], secrets.ca[3]) = (None, None));
    assert!(stored.leaf.is_ok(), "{stored:?}");
    let lost = stored.authorities.unwrap_err();
    assert_eq!((lost.problem.as_str(), lost.remains.len()), ("key ca.key is missing", 3));
    // Earlier authorities end, and are forgotten.
    let stored = read(&|secrets| secrets.ca[4] = Some(old.pem() + &expired.pem()));
    assert_eq!((stored.damage.len(), stored.authorities.unwrap().previous), (1, vec![old.clone()]));
    // The bundle beside the pair is not believed.
    for bundle in [None, Some(String::new()), Some(whole.bundle() + &expired.pem()), Some(old.pem())] {
        let stored = read(&|secrets| secrets.pair[2].clone_from(&bundle));
        assert!(!stored.publishes_all && stored.leaf.is_ok(), "{stored:?}");
    }
}

#[test]
fn repairs_come_in_the_order_in_which_they_need_each_other() {
    let current = ca(0, 3650);
    let pair = leaf(&current, 0, 365);
    let all = Secrets::of(&Authorities::new(current, Vec::new()), &pair);
    let without = |ca: &[usize], pair: &[usize]| {
        let mut secrets = all.clone();
        for at in ca {
            secrets.ca[*at] = None;
        }
        for at in pair {
            secrets.pair[*at] = None;
        }
        secrets
    };
    let damaged = {
        let mut secrets = without(&[], &[0, 2]);
        secrets.ca[4] = Some("no PEM".to_owned());
        secrets
    };
    // The Secrets; whether authorities were adopted; whether the TLS library takes a leaf that passes our checks.
    for (name, secrets, adopted, servable, expected) in [
        ("nothing is damaged", all.clone(), false, true, None),
        ("no bundle is beside the pair", without(&[], &[2]), false, true, Some(Repair::PublishBundle)),
        ("the pair has no key", without(&[], &[1, 2]), false, true, Some(Repair::IssueLeaf)),
        ("the TLS library refuses the leaf", all.clone(), false, false, Some(Repair::IssueLeaf)),
        ("an authority was adopted", without(&[], &[1, 2]), true, true, Some(Repair::RewriteAuthorities)),
        ("an authority does not read, and there is no pair", damaged, false, true, Some(Repair::RewriteAuthorities)),
        ("the authority has no key", without(&[1], &[0, 1, 2]), true, true, Some(Repair::ReplaceAuthority)),
        ("a first start", Secrets::default(), false, true, Some(Repair::ReplaceAuthority)),
    ] {
        let stored = secrets.read(day(1));
        let can_serve = servable && stored.leaf.is_ok();
        assert_eq!(stored.next_repair(adopted, can_serve), expected, "{name}");
    }
}

#[test]
fn a_stored_authority_must_be_valid_now_and_alone() {
    let (own, other) = (ca(0, 3650), ca(0, 3650));
    let pair = leaf(&own, 0, 365);
    let sound = Secrets::of(&Authorities::new(own, Vec::new()), &pair);
    let lost = |secrets: &Secrets, now| secrets.read(now).authorities.map(|_| ()).map_err(|lost| lost.problem);
    let mut riding = sound.clone();
    riding.ca[0] = Some(sound.ca[0].clone().unwrap() + other.cert_pem());
    for (secrets, now, problem) in [
        (&sound, day(-1), "ca.crt is not valid before 2026-01-01T00:00:00Z"),
        (&sound, day(3651), "ca.crt expired at "),
        (&riding, day(5), "ca.crt holds more than one certificate"),
    ] {
        let said = lost(secrets, now).unwrap_err();
        assert!(said.starts_with(problem), "{problem}: {said}");
    }
    // A copy of itself is not the next one.
    let mut twice = sound.clone();
    (twice.ca[2], twice.ca[3]) = (sound.ca[0].clone(), sound.ca[1].clone());
    let stored = twice.read(day(5));
    assert_eq!((stored.damage.len(), stored.authorities.unwrap().phase()), (1, Phase::Steady));
}

// Where the authorities' Secret is lost whole, the bundle beside the pair is what is left to know them by.
#[test]
fn a_pair_without_its_authorities_is_served_under_its_bundle() {
    let own = ca(0, 3650);
    let pair = leaf(&own, 0, 365);
    let mut secrets = Secrets::of(&Authorities::new(own, Vec::new()), &pair);
    secrets.ca = Default::default();
    let stored = secrets.read(day(5));
    assert!(stored.leaf.is_ok() && stored.authorities.unwrap_err().remains.is_empty());
}

#[test]
fn anchors_are_the_first_readable_authorities_of_a_text() {
    let (first, second) = (ca(0, 3650), ca(0, 3650));
    let read = |text: &str| Anchor::read(text.as_bytes(), day(5));
    let wanted = [Anchor::from(&first)];
    assert_eq!(read(&(leaf(&first, 0, 365).cert_pem + first.cert_pem())), wanted, "a leaf is none");
    let broken = "-----BEGIN CERTIFICATE-----\n%%%%\n-----END CERTIFICATE-----\n";
    assert_eq!(read(&(first.cert_pem().to_owned() + broken + second.cert_pem())), wanted);
    assert_eq!(read(&first.cert_pem().repeat(40)).len(), 16);
}

#[test]
fn a_foreign_authority_is_no_reason_to_trust_a_foreign_leaf() {
    let (ours, theirs) = (ca(0, 3650), ca(0, 3650));
    let pair = leaf(&theirs, 0, 365);
    let mut secrets = Secrets::of(&Authorities::new(ours, Vec::new()), &pair);
    secrets.pair[2] = Some(theirs.cert_pem().to_owned());
    let stored = secrets.read(day(5));
    assert!(stored.leaf.is_err() && !stored.publishes_all && stored.authorities.is_ok(), "{stored:?}");
}

#[test]
fn few_previous_authorities_are_kept_and_no_key_is_shown() {
    let mut authorities = Authorities::new(ca(0, 3650), Vec::new());
    assert!(authorities.trust((0..9).map(|n| Anchor::from(&ca(0, 100 + n))).collect()));
    assert_eq!(authorities.previous.len(), 4);
    let shown =
        format!("{authorities:?} {:?}", Secrets::of(&authorities, &leaf(&authorities.current, 0, 9)).read(day(1)));
    assert!(!shown.contains("PRIVATE"), "{shown}");
}
