//! Endpoints that come and go, budgets, and private relays.

use std::num::NonZeroU32;

use super::*;
use crate::endpoint::{Budget, Member, Standing};

fn member(name: &str, role: Role) -> Member {
    Member { name: name.into(), host: Some(format!("{name}.example")), role, budget: Budget::default() }
}

fn of_roles(roles: &[Role], send_public: SendPublic, now: Instant) -> Pool {
    let config = PoolConfig { send_public, ..PoolConfig::default() };
    let names = "abcdef".chars().map(|name| EndpointName::new(name.to_string()));
    let mut pool = Pool::new(config, (7, 1), names.zip(roles.iter().copied()));
    for id in pool.ids().collect::<Vec<_>>() {
        pool.set_identity(id, Identity::Verified, now);
        pool.on_head(id, header(100), now);
    }
    pool
}

fn budgeted(budget: Budget, now: Instant) -> Pool {
    let members = [Member { budget, ..member("a", Role::Read) }, member("b", Role::Read)];
    let mut pool = Pool::new(PoolConfig::default(), (7, 1), members);
    for id in [EndpointId(0), EndpointId(1)] {
        pool.set_identity(id, Identity::Verified, now);
        pool.on_head(id, header(100), now);
    }
    pool
}

fn begin(pool: &mut Pool, tried: &[EndpointId], now: Instant) -> Option<Pick> {
    pool.begin(Need::Current, "m", None, tried, Resting::Ask, now)
}

#[test]
fn one_that_is_added_serves_once_it_is_identified_and_comes_last() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    let added = pool.add(member("c", Role::Read));
    assert!(!pool.get(added).was_asked());
    assert_eq!(order(&mut pool, Need::Current, now), "ab");
    pool.set_identity(added, Identity::Verified, now);
    pool.on_head(added, header(100), now);
    assert_eq!(order(&mut pool, Need::Current, now), "abc");
    assert_eq!(pool.find(&"c".into()), Some(added));
    assert_eq!(pool.status(now).endpoints[2].host.as_deref(), Some("c.example"));
}

#[test]
fn one_that_is_removed_gets_nothing_more_and_its_calls_end_as_they_end() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    pool.history_shown(EndpointId(0), DataKind::State, 5);
    let open = begin(&mut pool, &[], now).expect("it is well");
    assert_eq!(open.id, EndpointId(0));
    pool.remove(open.id, now);
    assert_eq!(order(&mut pool, Need::Current, now), "b");
    assert_eq!((pool.sticky(), pool.find(&"a".into())), (EndpointId(1), None));
    assert_eq!(pool.begin_tracking(open.id, now), None);
    assert!(pool.get(open.id).is_removed() && !pool.get(open.id).is_well());
    assert_eq!(pool.excluded(open.id, Need::Current, now).as_deref(), Some("it was removed"));
    assert_eq!((pool.oldest(DataKind::State), pool.get(open.id).hash_at(100)), (None, None));
    pool.end(open, "m", &FAULT, now);
    assert_eq!(pool.get(open.id).meter.in_flight(), 0);
    assert_eq!(pool.status(now).endpoints.len(), 1);
}

#[test]
fn a_candidate_takes_the_place_of_another_and_nothing_of_what_was_known_of_it() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    let old = EndpointId(0);
    for _ in 0..5 {
        pool.end(Pick { id: old, probe: false }, "m", &FAULT, now);
    }
    let candidate = pool.add_candidate(member("a", Role::Read));
    pool.set_identity(candidate, Identity::Verified, now);
    pool.on_head(candidate, header(100), now);
    assert_eq!(order(&mut pool, Need::Current, now), "ba", "it has no part in anything yet");
    assert_eq!(pool.get(pool.find(&"a".into()).expect("it is there")).faults, 5);
    pool.replace(old, candidate, now);
    assert_eq!(pool.ids().collect::<Vec<_>>(), [candidate, EndpointId(1)]);
    assert!(pool.get(old).is_removed());
    assert_eq!(order(&mut pool, Need::Current, now + Duration::from_secs(30)), "ab");

    let late = pool.add_candidate(member("a", Role::Read));
    pool.replace(old, late, now);
    assert_eq!(
        pool.ids().collect::<Vec<_>>(),
        [candidate, EndpointId(1)],
        "the old one is not there any more"
    );
}

#[test]
fn a_replaced_endpoint_goes_on_serving_where_it_served() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    let candidate = pool.add_candidate(member("a", Role::Read));
    pool.set_identity(candidate, Identity::Verified, now);
    pool.on_head(candidate, header(100), now);
    pool.replace(EndpointId(0), candidate, now);
    assert_eq!(begin(&mut pool, &[], now).map(|pick| pick.id), Some(candidate));
}

#[test]
fn the_first_of_an_empty_pool_serves() {
    let now = Instant::now();
    let mut pool = Pool::new(PoolConfig::default(), (7, 1), Vec::<Member>::new());
    assert_eq!(pool.status(now).degraded.len(), 2, "nobody is asked, nobody sent to");
    let id = pool.add(member("a", Role::Read));
    assert_eq!(pool.sticky(), id);
}

#[test]
fn an_endpoint_over_its_budget_is_passed_over_without_fault_and_stays_the_sticky_one() {
    let now = Instant::now();
    let mut pool = budgeted(Budget::new(NonZeroU32::new(1), None), now);
    let first = begin(&mut pool, &[], now).expect("there is room");
    let second = begin(&mut pool, &[], now).expect("there is another");
    assert_eq!((first.id, second.id, pool.sticky()), (EndpointId(0), EndpointId(1), EndpointId(0)));
    assert_eq!(pool.begin_only(first.id, now), None);
    // When nobody else is left, it is waited for.
    assert_eq!(begin(&mut pool, &[EndpointId(1)], now), None);
    let wait = |pool: &Pool, tried: &[EndpointId]| pool.wait(Need::Current, tried, Resting::Ask, now);
    assert!(wait(&pool, &[EndpointId(1)]).is_some_and(|wait| wait > Duration::ZERO));
    assert_eq!(wait(&pool, &[EndpointId(0)]), None, "it has been asked already");
    // A question about its own answer is not held up.
    let about = pool.begin_at(first.id, now);
    assert_eq!(pool.get(first.id).meter.in_flight(), 2);
    assert_eq!(pool.status(now).endpoints[0].calls, 2);
    for pick in [first, about] {
        pool.abandon(pick, now);
    }
    assert_eq!(begin(&mut pool, &[], now).map(|pick| pick.id), Some(EndpointId(0)));
    assert_eq!(pool.get(EndpointId(0)).faults, 0);
}

#[test]
fn one_that_rests_is_not_waited_for_when_somebody_has_spoken() {
    let now = Instant::now();
    let mut pool = budgeted(Budget::new(NonZeroU32::new(1), None), now);
    let open = begin(&mut pool, &[], now).expect("there is room");
    pool.begin_at(open.id, now);
    pool.end(open, "m", &Verdict::RateLimited { after: Some(Duration::from_secs(9)) }, now);
    let wait = |resting| pool.wait(Need::Current, &[EndpointId(1)], resting, now);
    assert_eq!((wait(Resting::Leave), wait(Resting::Ask).is_some()), (None, true));
}

#[test]
fn a_batch_and_the_tracker_count_against_the_rate() {
    let now = Instant::now();
    let mut pool = budgeted(Budget::new(None, NonZeroU32::new(3)), now);
    let pick = begin(&mut pool, &[], now).expect("there is room");
    pool.charge(pick.id, 2, now);
    assert_eq!(begin(&mut pool, &[], now).map(|pick| pick.id), Some(EndpointId(1)));
    assert!(pool.begin_tracking(EndpointId(0), now).is_some(), "it is not held up");
    let budget = pool.status(now).endpoints[0].budget;
    assert_eq!((budget.in_flight, budget.max_per_second, budget.left), (2, Some(3), Some(-1)));
    assert_eq!(pool.status(now).endpoints[1].budget.left, None);
    let wait = pool.wait(Need::Current, &[EndpointId(1)], Resting::Ask, now).expect("it is used up");
    assert!(wait > Duration::from_millis(660) && wait < Duration::from_millis(670), "{wait:?}");
    assert_eq!(begin(&mut pool, &[EndpointId(1)], now + wait).map(|pick| pick.id), Some(EndpointId(0)));
}

#[test]
fn the_tracker_gets_the_next_place_when_it_found_none() {
    let now = Instant::now();
    let mut pool = budgeted(Budget::new(NonZeroU32::new(1), None), now);
    let open = begin(&mut pool, &[], now).expect("there is room");
    assert_eq!(pool.begin_tracking(open.id, now), None);
    pool.end(open, "m", &Verdict::Answer, now);
    assert_eq!(begin(&mut pool, &[], now).map(|pick| pick.id), Some(EndpointId(1)));
    assert!(pool.begin_tracking(open.id, now).is_some());
}

#[test]
fn the_status_says_who_serves_and_why_the_others_are_asked_last() {
    let now = Instant::now();
    let first = Pick { id: EndpointId(0), probe: false };
    let check = |change: &dyn Fn(&mut Pool), standing, excluded: Option<&str>| {
        let mut pool = pool(&[100, 100], now);
        change(&mut pool);
        let status = pool.status(now);
        assert_eq!(
            (status.endpoints[0].standing, status.endpoints[0].excluded.as_deref()),
            (standing, excluded)
        );
        begin(&mut pool, &[], now);
        let serves = if excluded.is_some() { "b" } else { "a" };
        assert_eq!(pool.status(now).sticky, Some(serves.into()));
    };
    check(&|_| {}, Standing::Serving, None);
    let fails = |pool: &mut Pool| (0..5).for_each(|_| pool.end(first, "m", &FAULT, now));
    check(&fails, Standing::Open, Some("its breaker is open"));
    let limited = |pool: &mut Pool| pool.end(first, "m", &Verdict::RateLimited { after: None }, now);
    check(&limited, Standing::Cooling, Some("it asked us to wait"));
    check(&|pool| pool.unheard(first.id, now), Standing::Silent, Some("it does not answer"));
}

#[test]
fn an_origin_is_waited_for_beside_another_while_it_is_well_and_may_have_it() {
    let now = Instant::now();
    let origin = |pool: &Pool| pool.origin("m", DataKind::Blocks, 50, now);
    let id = EndpointId(1);
    let fails = |change: &dyn Fn(&mut Pool)| {
        let mut pool = of_roles(&[Role::Read, Role::Origin], SendPublic::Never, now);
        assert_eq!(origin(&pool), Some(id));
        change(&mut pool);
        origin(&pool).is_none()
    };
    assert_eq!(origin(&of_roles(&[Role::Origin], SendPublic::Never, now)), None, "it is alone");
    assert!(fails(&|pool| pool.set_identity(id, Identity::Unknown, now)));
    assert!(fails(&|pool| (0..5).for_each(|_| pool.end(Pick { id, probe: false }, "m", &FAULT, now))));
    assert!(fails(&|pool| pool.end(Pick { id, probe: false }, "m", &Verdict::Unsupported, now)));
    assert!(fails(&|pool| pool.history_refused(id, (DataKind::Blocks, 60), None, now)));
}

#[test]
fn where_there_is_a_private_endpoint_transactions_go_nowhere_else() {
    let now = Instant::now();
    let roles = [Role::Read, Role::Private, Role::SendOnly, Role::Private];
    let mut pool = of_roles(&roles, SendPublic::Never, now);
    assert_eq!((order(&mut pool, Need::Send, now).as_str(), pool.senders()), ("bd", 2));
    for need in [Need::Current, Need::AtHeight(100), Need::Reached(100)] {
        assert_eq!(order(&mut pool, need, now), "a", "{need:?}");
    }
    assert_eq!(pool.corroborations(header(100).block(), None), 2, "relays are not asked");
    assert_eq!(pool.status(now).endpoints[2].standing, Standing::Idle);
    assert_eq!(pool.status(now).endpoints[1].standing, Standing::Serving);
    // Whoever is preferred, and whatever becomes of them.
    for id in [EndpointId(1), EndpointId(3)] {
        for _ in 0..5 {
            pool.end(Pick { id, probe: false }, "m", &FAULT, now);
        }
    }
    let pick = pool.begin(Need::Send, "m", Some(EndpointId(0)), &[], Resting::Ask, now);
    assert_eq!(pick.map(|pick| pick.id), Some(EndpointId(1)));
    for id in [EndpointId(1), EndpointId(3)] {
        pool.remove(id, now);
    }
    assert_eq!(order(&mut pool, Need::Send, now), "ac", "without one it is as ever");
}

#[test]
fn with_consent_private_endpoints_come_first_and_the_others_after_them() {
    let now = Instant::now();
    let mut pool = of_roles(&[Role::Read, Role::Private, Role::SendOnly], SendPublic::Also, now);
    assert_eq!(order(&mut pool, Need::Send, now), "bac");
    let pick = pool.begin(Need::Send, "m", Some(EndpointId(0)), &[], Resting::Ask, now);
    assert_eq!(pick.map(|pick| pick.id), Some(EndpointId(1)), "before the one that is preferred");
    assert_eq!(order(&mut pool, Need::Current, now), "a");
}

#[test]
fn a_healthy_choice_looks_at_no_other_endpoint() {
    // Sixty-four cost what three do: nothing is looked at beyond the first.
    let now = Instant::now();
    let mut pool = pool(&[100; 20], now);
    assert!(begin(&mut pool, &[], now).is_some());
    assert_eq!(pool.review_at, None, "nothing is to be taken back");
    assert_eq!(pool.candidates(Need::Current, None).next(), Some(EndpointId(0)));
}

#[test]
fn what_waits_for_room_is_told_how_long_unless_the_endpoint_rests() {
    let now = Instant::now();
    let mut pool = budgeted(Budget::new(NonZeroU32::new(1), None), now);
    assert_eq!(pool.room_in(EndpointId(0), now), None, "there is room");
    let pick = pool.begin_only(EndpointId(0), now).expect("it may be asked");
    assert!(pool.room_in(pick.id, now).is_some_and(|wait| !wait.is_zero()));
    let other = pool.begin_at(pick.id, now);
    pool.end(other, "m", &Verdict::RateLimited { after: None }, now);
    assert_eq!(pool.room_in(pick.id, now), None, "it is not waited for");
}

#[test]
fn one_that_spent_its_budget_is_waited_for_before_one_that_hangs_is_asked() {
    let now = Instant::now();
    let (a, b) = (EndpointId(0), EndpointId(1));
    let mut pool = budgeted(Budget { max_per_second: NonZeroU32::new(1), ..Budget::default() }, now);
    pool.unheard(b, now);
    assert_eq!(begin(&mut pool, &[], now).map(|pick| pick.id), Some(a));
    assert_eq!(begin(&mut pool, &[], now), None);
    let wait = pool.wait(Need::Current, &[], Resting::Ask, now).expect("its budget fills again");
    assert_eq!(begin(&mut pool, &[], now + wait).map(|pick| pick.id), Some(a));
    assert_eq!(
        begin(&mut pool, &[a], now + wait).map(|pick| pick.id),
        Some(b),
        "it is asked when nobody else is left"
    );
}
