use alloy_primitives::B256;

use super::*;

mod heads;
mod properties;
mod roster;

use crate::{
    endpoint::{Header, Identity, Role, state::UNSUPPORTED_FOR},
    failure::{DataKind, FaultKind, Verdict},
    units::{BlockRef, EndpointName},
};

const FAULT: Verdict = Verdict::Fault(FaultKind::Refused);

fn header(number: u64) -> Header {
    let hash = |n: u64| B256::left_padding_from(&n.to_be_bytes());
    Header { number, hash: hash(number), parent: hash(number.saturating_sub(1)), timestamp: number }
}

/// Endpoints `a`, `b`, … at these heads, on a chain of one-second blocks.
fn pool(heads: &[u64], now: Instant) -> Pool {
    let name = |i: usize| EndpointName::new(((b'a' + i as u8) as char).to_string());
    let names = (0..heads.len()).map(|i| (name(i), Role::Read));
    let config = PoolConfig { block_time: Some(Duration::from_secs(1)), ..PoolConfig::default() };
    let mut pool = Pool::new(config, (7, 1), names);
    for (index, head) in heads.iter().enumerate() {
        pool.set_identity(EndpointId(index), Identity::Verified, now);
        pool.on_head(EndpointId(index), header(*head), now);
    }
    pool
}

/// The names in the order in which a call that always fails would try them.
fn order(pool: &mut Pool, need: Need, now: Instant) -> String {
    let mut tried = Vec::new();
    while let Some(pick) = pool.begin(need, "m", None, &tried, Resting::Ask, now) {
        pool.abandon(pick, now);
        tried.push(pick.id);
    }
    tried.iter().map(|id| pool.get(*id).name.as_str().to_owned()).collect()
}

#[test]
fn the_configured_order_is_the_preference() {
    let now = Instant::now();
    assert_eq!(order(&mut pool(&[100, 100, 100], now), Need::Current, now), "abc");
}

#[test]
fn an_endpoint_that_asked_us_to_wait_is_left_alone_by_the_tracker_too() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    let pick = pool.begin(Need::Current, "m", None, &[], Resting::Ask, now).expect("there is one");
    let after = Duration::from_secs(3);
    pool.end(pick, "m", &Verdict::RateLimited { after: Some(after) }, now);
    assert_eq!(pool.begin_tracking(pick.id, now + after - Duration::from_millis(1)), None);
    assert_eq!(pool.begin_tracking(pick.id, now + after), Some(pick));
    assert_eq!(order(&mut pool, Need::Current, now), "ba");
}

#[test]
fn a_stale_endpoint_is_asked_only_for_what_it_has_and_can_prove() {
    let now = Instant::now();
    let mut pool = pool(&[60, 100, 100], now);
    assert_eq!(order(&mut pool, Need::Current, now), "bc");
    assert_eq!(order(&mut pool, Need::Send, now), "bc");
    assert_eq!(order(&mut pool, Need::AtHeight(61), now), "bc");
    assert_eq!(order(&mut pool, Need::AtHeight(60), now), "bac");
}

#[test]
fn a_few_blocks_are_never_stale_and_neither_are_a_few_seconds() {
    let now = Instant::now();
    let stale = |behind: Header| {
        let mut pool = pool(&[100, 100], now);
        pool.on_head(EndpointId(1), behind, now);
        pool.on_head(EndpointId(0), Header { timestamp: 1000, ..header(200) }, now);
        pool.excluded(EndpointId(1), Need::Current, now).is_some()
    };
    assert!(!stale(Header { timestamp: 0, ..header(197) }), "a chain that was idle");
    assert!(!stale(Header { timestamp: 985, ..header(150) }), "a chain of many blocks a second");
    assert!(stale(Header { timestamp: 984, ..header(196) }));
}

#[test]
fn staleness_is_left_only_half_way_back() {
    let now = Instant::now();
    let mut pool = pool(&[84, 100], now);
    let stale = |pool: &Pool| pool.excluded(EndpointId(0), Need::Current, now).is_some();
    assert!(stale(&pool), "16 behind, 15 allowed");
    pool.on_head(EndpointId(0), header(90), now);
    assert!(stale(&pool), "10 behind, but not yet back");
    pool.on_head(EndpointId(0), header(93), now);
    assert!(!stale(&pool));
}

#[test]
fn a_configured_lag_is_in_blocks_and_left_half_way_back_too() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    pool.config.max_lag = Some(10);
    let mut stale = |endpoint: usize, number: u64| {
        pool.on_head(EndpointId(endpoint), header(number), now);
        pool.excluded(EndpointId(0), Need::Current, now).is_some()
    };
    assert!(!stale(1, 110), "10 behind");
    assert!(stale(1, 111));
    assert!(stale(0, 105), "6 behind, and not yet half way back");
    assert!(!stale(0, 106));
}

#[test]
fn an_endpoint_that_leaves_the_tracker_without_an_answer_is_asked_last() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    let open = pool.begin_tracking(EndpointId(0), now).expect("it is well");
    assert_eq!(order(&mut pool, Need::Current, now + Duration::from_secs(2)), "ab");
    let later = now + Duration::from_secs(3);
    assert_eq!(order(&mut pool, Need::Current, later), "ba");
    pool.end(open, "m", &Verdict::Fault(FaultKind::Timeout), later);
    assert_eq!(order(&mut pool, Need::Current, later), "ba", "a timeout is no answer");
    let open = pool.begin_tracking(EndpointId(0), later).expect("its breaker is closed");
    pool.end(open, "m", &Verdict::Answer, later);
    assert!(pool.excluded(EndpointId(0), Need::Current, later).is_none());
}

#[test]
fn an_endpoint_that_said_nothing_while_a_call_timed_out_is_asked_last_until_it_speaks() {
    let begun = Instant::now();
    let late = begun + Duration::from_secs(2);
    let mut pool = pool(&[100, 100], begun);
    let timed_out = |pool: &mut Pool| {
        let pick = pool.begin(Need::Current, "m", None, &[], Resting::Ask, begun).expect("it is well");
        pool.end(pick, "m", &Verdict::Fault(FaultKind::Timeout), late);
        pool.unheard(pick.id, begun);
    };
    let speaks = |pool: &mut Pool, at| {
        let open = pool.begin_tracking(EndpointId(0), at).expect("its breaker is closed");
        pool.end(open, "m", &Verdict::Answer, at);
    };
    speaks(&mut pool, begun + Duration::from_secs(1));
    timed_out(&mut pool);
    assert_eq!(order(&mut pool, Need::Current, late), "ab", "that call was slow, the endpoint is not");

    let mut pool = self::pool(&[100, 100], begun);
    speaks(&mut pool, begun);
    timed_out(&mut pool);
    assert_eq!(order(&mut pool, Need::Current, late), "ba");
    assert_eq!(pool.resting(Need::Current, late), [EndpointId(0)]);
    speaks(&mut pool, late);
    assert_eq!(pool.resting(Need::Current, late), []);
}

#[test]
fn an_open_breaker_sends_the_call_on_and_the_last_endpoint_is_asked_all_the_same() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    for id in [EndpointId(0), EndpointId(1)] {
        for _ in 0..5 {
            pool.end(Pick { id, probe: false }, "m", &FAULT, now);
        }
        assert_eq!(order(&mut pool, Need::Current, now), "ba");
    }
}

#[test]
fn another_chain_is_never_asked() {
    let now = Instant::now();
    let mut pool = pool(&[100], now);
    pool.set_identity(EndpointId(0), Identity::Wrong("chain id 5".into()), now);
    assert_eq!(order(&mut pool, Need::AtHeight(1), now), "");
}

#[test]
fn calls_stay_where_they_are_until_the_preferred_endpoint_has_been_well_for_a_while() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    for _ in 0..5 {
        pool.end(Pick { id: EndpointId(0), probe: false }, "m", &FAULT, now);
    }
    assert_eq!(order(&mut pool, Need::Current, now), "ba");
    let back = now + Duration::from_secs(5);
    let probe = pool.begin_tracking(EndpointId(0), back).expect("the cooldown is over");
    pool.end(probe, "m", &Verdict::Answer, back);
    pool.on_head(EndpointId(0), header(101), back);
    assert_eq!(order(&mut pool, Need::Current, back), "ba");
    assert_eq!(order(&mut pool, Need::Current, back + Duration::from_secs(30)), "ab");
}

#[test]
fn the_preferred_endpoint_serves_again_as_soon_as_a_silence_is_over() {
    let begun = Instant::now();
    let mut pool = pool(&[100, 100], begun);
    let asked = begun + Duration::from_secs(3_600);
    let open = pool.begin_tracking(EndpointId(0), asked).expect("it is well");
    let silent = asked + Duration::from_secs(3);
    assert_eq!(order(&mut pool, Need::Current, silent), "ba");
    pool.end(open, "m", &Verdict::Answer, silent);
    assert_eq!(order(&mut pool, Need::Current, silent), "ab");
}

#[test]
fn an_answer_after_a_fault_begins_the_while_for_which_the_preferred_endpoint_must_be_well() {
    let begun = Instant::now();
    let mut pool = pool(&[100, 100], begun);
    let first = Pick { id: EndpointId(0), probe: false };
    for _ in 0..5 {
        pool.end(first, "m", &FAULT, begun);
    }
    assert_eq!(order(&mut pool, Need::Current, begun), "ba");
    let back = begun + Duration::from_secs(5);
    let probe = pool.begin_tracking(first.id, back).expect("the cooldown is over");
    pool.end(probe, "m", &Verdict::Answer, back);
    // So long after, one fault more does not open the breaker.
    let later = begun + Duration::from_secs(600);
    pool.end(first, "m", &FAULT, later);
    pool.end(first, "m", &Verdict::Answer, later);
    assert_eq!(order(&mut pool, Need::Current, later + Duration::from_secs(29)), "ba");
    assert_eq!(order(&mut pool, Need::Current, later + Duration::from_secs(30)), "ab");
}

#[test]
fn a_method_that_is_not_served_is_asked_for_elsewhere() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    pool.end(Pick { id: EndpointId(0), probe: false }, "m", &Verdict::Unsupported, now);
    assert_eq!(order(&mut pool, Need::Current, now), "ba", "only when nobody else is left");
    let other = pool.begin(Need::Current, "other", None, &[], Resting::Ask, now).map(|pick| pick.id);
    assert_eq!(other, Some(EndpointId(0)));
    assert_eq!(order(&mut pool, Need::Current, now + UNSUPPORTED_FOR), "ab");
}

#[test]
fn a_lagging_replica_behind_the_url_does_not_lower_its_head() {
    let now = Instant::now();
    let mut pool = pool(&[100], now);
    pool.on_head(EndpointId(0), header(99), now + Duration::from_secs(1));
    assert_eq!(pool.frontier().map(|head| head.number), Some(100));
    pool.on_head(EndpointId(0), header(99), now + Duration::from_secs(15));
    assert_eq!(pool.frontier().map(|head| head.number), Some(99), "no replica has reached 100 again");
}

#[test]
fn a_replica_that_shows_a_height_between_polls_does_not_lower_the_head() {
    let now = Instant::now();
    let mut pool = pool(&[100], now);
    pool.on_head(EndpointId(0), header(104), now);
    pool.on_head(EndpointId(0), header(102), now);
    assert_eq!(pool.frontier().map(|head| head.number), Some(104));
    let other = Header { hash: B256::ZERO, parent: B256::ZERO, ..header(103) };
    pool.on_head(EndpointId(0), other, now);
    assert_eq!(pool.frontier().map(|head| head.number), Some(103), "another hash there is a reorganisation");
}

#[test]
fn a_rate_limit_in_answer_to_a_probe_closes_the_breaker_and_is_waited_out() {
    let now = Instant::now();
    let mut pool = pool(&[100, 100], now);
    for _ in 0..5 {
        pool.end(Pick { id: EndpointId(0), probe: false }, "m", &FAULT, now);
    }
    let due = pool.get(EndpointId(0)).probe_at().expect("its breaker is open");
    let probe = pool.begin_tracking(EndpointId(0), due).expect("the cooldown is over");
    let limited = Verdict::RateLimited { after: Some(Duration::from_secs(60)) };
    pool.end(probe, "m", &limited, due);
    assert!(pool.begin_tracking(EndpointId(0), due + Duration::from_secs(59)).is_none());
    assert!(pool.begin_tracking(EndpointId(0), due + Duration::from_secs(60)).is_some());
}

#[test]
fn a_second_endpoint_corroborates_a_block_only_by_its_hash() {
    let now = Instant::now();
    let pool = pool(&[100, 101], now);
    let block = header(100).block();
    assert_eq!(pool.corroborations(block, Some(EndpointId(0))), 1);
    let other = BlockRef { hash: B256::ZERO, ..block };
    assert_eq!(pool.corroborations(other, None), 0);
}

#[test]
fn the_block_time_is_measured_over_the_longest_span() {
    let now = Instant::now();
    let mut pool = Pool::new(PoolConfig::default(), (7, 1), [(EndpointName::from("a"), Role::Read)]);
    assert_eq!(pool.block_time(), super::heads::UNMEASURED_BLOCK_TIME);
    pool.set_identity(EndpointId(0), Identity::Verified, now);
    pool.on_head(EndpointId(0), Header { timestamp: 1000, ..header(100) }, now);
    pool.on_ancestor(EndpointId(0), Header { timestamp: 968, ..header(84) });
    assert_eq!(pool.block_time(), Duration::from_secs(2));
}

#[test]
fn an_endpoint_is_known_by_what_it_showed_and_whether_it_was_asked() {
    let now = Instant::now();
    let mut pool = Pool::new(PoolConfig::default(), (7, 1), [(EndpointName::from("a"), Role::Origin)]);
    let id = EndpointId(0);
    assert_eq!(*pool.get(id).identity(), Identity::Unknown);
    assert_eq!((pool.get(id).head(), pool.get(id).block_at_most(500)), (None, None));
    pool.set_identity(id, Identity::Verified, now);
    for number in [100, 101] {
        pool.on_head(id, header(number), now);
    }
    let endpoint = pool.get(id);
    assert_eq!(*endpoint.identity(), Identity::Verified);
    assert_eq!((endpoint.role(), endpoint.head()), (Role::Origin, Some(header(101))));
    assert_eq!(endpoint.hash_at(100), Some(header(100).hash));
    assert_eq!(endpoint.block_at_most(100), Some(header(100).block()));
    assert_eq!(endpoint.block_at_most(500), Some(header(101).block()));
    assert!(!endpoint.was_asked());
    assert!(pool.begin(Need::Current, "m", None, &[], Resting::Ask, now).is_some());
    assert!(pool.get(id).was_asked());
}

#[test]
fn the_status_counts_how_often_each_verdict_was_given() {
    let now = Instant::now();
    let mut pool = pool(&[100], now);
    let pick = Pick { id: EndpointId(0), probe: false };
    for verdict in [&Verdict::Answer, &Verdict::NotYet, &Verdict::Answer, &Verdict::Answer] {
        pool.end(pick, "m", verdict, now);
    }
    let expected = [(Verdict::Answer.label().to_owned(), 3), (Verdict::NotYet.label().to_owned(), 1)];
    assert_eq!(pool.status(now).endpoints[0].verdicts, expected.into());
}

#[test]
fn a_question_of_the_tracker_that_is_given_up_is_no_silence() {
    let now = Instant::now();
    let later = now + Duration::from_secs(60);
    let id = EndpointId(0);
    let mut pool = pool(&[100, 100], now);
    let pick = pool.begin_tracking(id, now).expect("it is well");
    pool.abandon_tracking(pick, now, now);
    assert_eq!(pool.excluded(id, Need::Current, later), None);
    // One that is open since before still is.
    pool.begin_tracking(id, now).expect("it is well");
    let moment = now + Duration::from_millis(1);
    let pick = pool.begin_tracking(id, moment).expect("it is well");
    pool.abandon_tracking(pick, moment, moment);
    assert!(pool.excluded(id, Need::Current, later).is_some());
}

#[test]
fn a_height_that_the_chain_cannot_have_come_to_is_not_taken_from_anybody() {
    let now = Instant::now();
    let mut pool = pool(&[100, 99], now);
    assert_eq!(pool.on_height(EndpointId(1), u64::MAX, now), Plausible::No);
    assert_eq!(pool.on_height(EndpointId(1), 100_000, now), Plausible::No);
    assert_eq!(pool.highest_readable(now), Some(100));
    assert_eq!(pool.on_height(EndpointId(1), 103, now), Plausible::Yes);
    assert_eq!(pool.highest_readable(now), Some(103));
    // An hour later, with nothing heard since, it can be far ahead.
    let hour = now + Duration::from_secs(3_600);
    assert_eq!(pool.on_height(EndpointId(1), 3_700, hour), Plausible::Yes);
    let after = Some(Duration::from_secs(3));
    let pick = pool.begin_at(EndpointId(1), hour);
    pool.end(pick, "m", &Verdict::RateLimited { after }, hour);
    assert_eq!(pool.highest_readable(hour), Some(100), "who rests is not counted on");
    let pick = pool.begin_at(EndpointId(0), hour);
    pool.end(pick, "m", &Verdict::RateLimited { after }, hour);
    assert_eq!(pool.highest_readable(hour), Some(3_700), "while there is another");
}
