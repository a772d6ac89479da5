//! Which heads are believed, and what the pool says of them.

use super::*;
use crate::endpoint::{Standing, state::Doubt};

/// The time of day at the beginning of each test.
const TODAY: u64 = 1_800_000_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(number: u64, timestamp: u64) -> Header {
    Header { timestamp, ..header(number) }
}

/// Endpoints `a`, `b`, … of a chain of twelve-second blocks, at block 1000, just now.
fn current(count: usize, now: Instant) -> Pool {
    let name = |i: usize| EndpointName::new(((b'a' + i as u8) as char).to_string());
    let names = (0..count).map(|i| (name(i), Role::Read));
    let config = PoolConfig { block_time: Some(seconds(12)), ..PoolConfig::default() };
    let mut pool = Pool::new(config, (7, 1), names);
    pool.tell_time(now, seconds(TODAY));
    for index in 0..count {
        pool.set_identity(EndpointId(index), Identity::Verified, now);
        pool.on_head(EndpointId(index), at(1_000, TODAY), now);
    }
    pool
}

fn doubt(pool: &Pool, index: usize) -> Option<Doubt> {
    let endpoint = pool.get(EndpointId(index));
    endpoint.doubt.filter(|_| endpoint.doubted).map(|(doubt, _)| doubt)
}

#[test]
fn a_head_from_the_future_is_not_believed_until_a_second_endpoint_reaches_it() {
    let now = Instant::now();
    let mut pool = current(3, now);
    pool.on_head(EndpointId(0), at(1_001, TODAY + 15), now);
    assert_eq!(doubt(&pool, 0), None, "clocks differ by as much");
    pool.on_head(EndpointId(0), at(1_002, TODAY + 3_600), now);
    assert_eq!(doubt(&pool, 0), Some(Doubt::Future));
    assert_eq!(pool.frontier().map(|head| head.number), Some(1_000));
    assert_eq!(order(&mut pool, Need::Current, now), "bc");
    assert_eq!(order(&mut pool, Need::Send, now), "bc");
    assert_eq!(order(&mut pool, Need::Reached(1_000), now), "bc");
    assert_eq!(order(&mut pool, Need::AtHeight(1_002), now), "bac", "that proves itself");
    assert!(!pool.get(EndpointId(0)).is_well());
    let status = pool.status(now);
    assert_eq!(status.endpoints[0].standing, Standing::Doubted);
    assert!(status.endpoints[0].excluded.as_ref().is_some_and(|why| why.contains("ahead of the clock")));
    assert!(status.degraded[0].contains("the head of a is ahead of the clock"), "{:?}", status.degraded);

    pool.on_head(EndpointId(2), at(1_001, TODAY + 3_575), now);
    assert_eq!(doubt(&pool, 0), Some(Doubt::Future), "more than two blocks lie between them");
    pool.on_head(EndpointId(2), at(1_002, TODAY + 3_576), now);
    assert_eq!((doubt(&pool, 0), doubt(&pool, 2)), (None, None), "it is our clock that is slow");
    assert_eq!(pool.frontier().map(|head| head.number), Some(1_002));
    assert_eq!(pool.status(now).degraded, Vec::<String>::new());
}

#[test]
fn on_a_chain_of_slow_blocks_staleness_is_left_one_block_behind() {
    let now = Instant::now();
    let mut pool = current(2, now);
    let later = now + seconds(60);
    let mut stale = |endpoint: usize, number: u64| {
        pool.on_head(EndpointId(endpoint), at(number, TODAY + (number - 1_000) * 12), later);
        pool.excluded(EndpointId(0), Need::Current, later).is_some()
    };
    assert!(!stale(1, 1_003), "three blocks behind");
    assert!(stale(1, 1_004));
    assert!(stale(0, 1_001));
    assert!(stale(0, 1_002), "two blocks behind");
    assert!(!stale(0, 1_003));
}

#[test]
fn another_block_at_a_height_that_was_shown_is_a_reorg_and_told_of_once() {
    let now = Instant::now();
    let id = EndpointId(0);
    let mut pool = current(1, now);
    assert!(!pool.take_reorg(id));
    for number in 1_001..1_004 {
        pool.on_head(id, at(number, TODAY), now);
        assert!(!pool.take_reorg(id), "it came on");
    }
    let sibling = Header { hash: B256::repeat_byte(1), ..at(1_003, TODAY) };
    pool.on_head(id, sibling, now);
    assert!(pool.take_reorg(id));
    assert!(!pool.take_reorg(id), "it was told of");
    assert_eq!(pool.get(id).hash_at(1_001), Some(header(1_001).hash), "what lies below has stayed");
    // On a block that was not shown.
    pool.on_head(id, Header { parent: B256::repeat_byte(2), ..at(1_004, TODAY) }, now);
    assert!(pool.take_reorg(id));

    pool.on_head(id, Header { hash: B256::repeat_byte(3), ..at(1_004, TODAY) }, now);
    pool.set_identity(id, Identity::Unknown, now);
    assert!(!pool.take_reorg(id), "nobody knows of which chain");
}

#[test]
fn the_clock_goes_on_between_two_looks_at_it() {
    let now = Instant::now();
    let mut pool = current(2, now);
    let later = now + seconds(120);
    pool.on_head(EndpointId(0), at(1_010, TODAY + 120), later);
    assert_eq!(doubt(&pool, 0), None);
    pool.on_head(EndpointId(0), at(1_011, TODAY + 136), later);
    assert_eq!(doubt(&pool, 0), Some(Doubt::Future));
}

#[test]
fn a_head_may_be_ahead_of_the_clock_by_fifteen_seconds() {
    let now = Instant::now();
    let mut pool = current(2, now);
    // So long that no other is near.
    let later = now + seconds(60);
    pool.on_head(EndpointId(0), at(1_005, TODAY + 75), later);
    assert_eq!(doubt(&pool, 0), None);
    pool.on_head(EndpointId(0), at(1_006, TODAY + 76), later);
    assert_eq!(doubt(&pool, 0), Some(Doubt::Future));
}

#[test]
fn one_from_the_future_and_one_too_far_ahead_are_doubted_each_for_its_own_reason() {
    let now = Instant::now();
    let mut pool = current(3, now);
    pool.on_head(EndpointId(0), at(1_001, TODAY + 3_600), now);
    pool.on_head(EndpointId(1), at(9_000, TODAY), now);
    assert_eq!([0, 1, 2].map(|index| doubt(&pool, index)), [Some(Doubt::Future), Some(Doubt::TooFar), None]);
}

#[test]
fn without_a_clock_no_head_is_from_the_future() {
    let now = Instant::now();
    let mut pool = current(2, now);
    pool.time_of_day = None;
    pool.on_head(EndpointId(0), at(1_001, TODAY + 3_600), now);
    assert_eq!(doubt(&pool, 0), None);
    assert_eq!(pool.status(now).frontier.and_then(|head| head.age), None);
}

#[test]
fn a_head_further_ahead_than_the_chain_can_have_come_is_not_believed() {
    let now = Instant::now();
    let mut pool = current(2, now);
    pool.on_head(EndpointId(0), at(1_064, TODAY), now);
    assert_eq!(doubt(&pool, 0), None, "a burst");
    pool.on_head(EndpointId(0), at(1_065, TODAY), now);
    assert_eq!(doubt(&pool, 0), Some(Doubt::TooFar));
    assert_eq!(pool.frontier().map(|head| head.number), Some(1_000), "the older one is served");
    assert!(pool.get(EndpointId(1)).is_well());
    let status = pool.status(now);
    assert!(status.endpoints[0].excluded.as_ref().is_some_and(|why| why.contains("further ahead")));
    assert!(status.degraded[0].contains("the head of a is further ahead"), "{:?}", status.degraded);
    // Twelve seconds are four blocks of leeway more.
    pool.on_head(EndpointId(0), at(1_065, TODAY), now + seconds(12));
    assert_eq!(doubt(&pool, 0), None, "the other has not been heard since");
    pool.on_head(EndpointId(0), at(1_069, TODAY), now + seconds(12));
    assert_eq!(doubt(&pool, 0), Some(Doubt::TooFar));
}

#[test]
fn the_head_that_is_old_by_the_clock_is_the_stale_one() {
    let now = Instant::now();
    let mut pool = current(2, now);
    // It stands still, and is heard all the same.
    let later = now + seconds(12_000);
    pool.on_head(EndpointId(1), at(1_000, TODAY), later);
    pool.on_head(EndpointId(0), at(2_000, TODAY + 12_000), later);
    assert_eq!(doubt(&pool, 0), None);
    assert_eq!(order(&mut pool, Need::Current, later), "a");
    assert_eq!(pool.status(later).endpoints[1].standing, Standing::Stale);
}

#[test]
fn two_that_are_far_ahead_vouch_for_each_other_and_one_alone_is_believed() {
    let now = Instant::now();
    let mut pool = current(3, now);
    pool.on_head(EndpointId(0), at(9_000, TODAY), now);
    assert_eq!(doubt(&pool, 0), Some(Doubt::TooFar));
    pool.on_head(EndpointId(1), at(9_001, TODAY), now);
    assert_eq!((doubt(&pool, 0), doubt(&pool, 1)), (None, None));

    let mut pool = current(1, now);
    pool.on_head(EndpointId(0), at(9_000, TODAY + 9_000), now);
    assert_eq!(doubt(&pool, 0), None, "there is nobody else");
}

#[test]
fn when_every_head_is_in_doubt_the_lowest_is_served() {
    let now = Instant::now();
    let mut pool = current(2, now);
    pool.on_head(EndpointId(0), at(1_001, TODAY + 9_000), now);
    pool.on_head(EndpointId(1), at(1_002, TODAY + 3_600), now);
    assert_eq!((doubt(&pool, 0), doubt(&pool, 1)), (None, Some(Doubt::Future)));
    assert_eq!(order(&mut pool, Need::Current, now), "a");
}

#[test]
fn several_that_are_each_too_far_ahead_of_the_next_are_all_doubted() {
    let now = Instant::now();
    let mut pool = current(3, now);
    pool.on_head(EndpointId(1), at(5_000, TODAY), now);
    pool.on_head(EndpointId(0), at(9_000, TODAY), now);
    assert_eq!((doubt(&pool, 0), doubt(&pool, 1)), (Some(Doubt::TooFar), Some(Doubt::TooFar)));
    assert_eq!(order(&mut pool, Need::Current, now), "c");
}

#[test]
fn disbelief_ends() {
    let now = Instant::now();
    let mut pool = current(2, now);
    let forged = at(1_000_000, TODAY);
    pool.on_head(EndpointId(0), forged, now);
    let see = |pool: &mut Pool, at: Instant| {
        pool.on_head(EndpointId(0), forged, at);
        pool.on_head(EndpointId(1), self::at(1_000, TODAY), at);
        doubt(pool, 0)
    };
    assert_eq!(see(&mut pool, now + seconds(599)), Some(Doubt::TooFar));
    assert_eq!(see(&mut pool, now + seconds(600)), None);
    assert_eq!(pool.frontier(), Some(forged));
    // It counts anew when it was plausible in between.
    pool.on_head(EndpointId(1), at(999_990, TODAY), now + seconds(601));
    assert_eq!(pool.get(EndpointId(0)).doubt, None);
}

#[test]
fn a_doubted_head_does_not_change_the_measured_block_time() {
    let now = Instant::now();
    let mut pool = current(2, now);
    pool.config.block_time = None;
    for index in [0, 1] {
        pool.on_ancestor(EndpointId(index), at(984, TODAY - 16 * 12));
    }
    assert_eq!(pool.block_time(), seconds(12));
    pool.on_head(EndpointId(0), at(1_000_000, TODAY), now);
    assert_eq!(doubt(&pool, 0), Some(Doubt::TooFar));
    assert_eq!(pool.block_time(), seconds(12));
}

#[test]
fn an_endpoint_that_is_wrong_gone_or_unverified_has_no_part_in_the_frontier() {
    let now = Instant::now();
    let mut pool = current(2, now);
    pool.on_head(EndpointId(0), at(1_005, TODAY), now);
    assert_eq!(pool.frontier().map(|head| head.number), Some(1_005));
    for identity in [Identity::Wrong("x".into()), Identity::Unverified, Identity::Unknown] {
        pool.set_identity(EndpointId(0), identity, now);
        assert_eq!(pool.frontier().map(|head| head.number), Some(1_000));
        pool.set_identity(EndpointId(0), Identity::Verified, now);
        assert_eq!(pool.frontier().map(|head| head.number), Some(1_005));
    }
    let pick = pool.begin(Need::Current, "m", None, &[], Resting::Ask, now).expect("it is well");
    pool.end(pick, "m", &Verdict::WrongIdentity, now);
    assert_eq!(pool.frontier().map(|head| head.number), Some(1_000));
    pool.set_identity(EndpointId(0), Identity::Verified, now);
    pool.remove(EndpointId(0), now);
    assert_eq!(pool.frontier().map(|head| head.number), Some(1_000));
}

#[test]
fn one_that_holds_no_block_0_is_read_from_last_and_never_sent_to() {
    let now = Instant::now();
    let mut pool = current(2, now);
    pool.set_identity(EndpointId(0), Identity::Unverified, now);
    assert_eq!(order(&mut pool, Need::Current, now), "ba");
    assert_eq!(order(&mut pool, Need::Send, now), "b");
    assert_eq!(pool.begin(Need::Current, "m", None, &[EndpointId(1)], Resting::Leave, now), None);
    let status = pool.status(now);
    assert_eq!(status.endpoints[0].standing, Standing::Unverified);
    assert!(status.endpoints[0].excluded.as_ref().is_some_and(|why| why.contains("checkpoint")));
    // Also after one that rests.
    for _ in 0..5 {
        pool.end(Pick { id: EndpointId(1), probe: false }, "m", &FAULT, now);
    }
    assert_eq!(order(&mut pool, Need::Current, now), "ba");
}

#[test]
fn a_chain_of_steady_blocks_that_stands_still_is_told_of_and_an_idle_one_is_not() {
    let now = Instant::now();
    let old = |status: &crate::endpoint::PoolStatus| {
        status.degraded.iter().any(|why| why.contains("every head is old"))
    };
    let mut pool = current(2, now);
    assert!(!old(&pool.status(now + seconds(120))), "ten blocks");
    assert!(old(&pool.status(now + seconds(121))));
    assert_eq!(order(&mut pool, Need::Current, now + seconds(121)), "ab", "they serve all the same");

    // Measured: nothing is known of a chain that has not moved since.
    let measured = |gaps: &[u64]| {
        let mut pool = current(1, now);
        pool.config.block_time = None;
        pool.on_ancestor(EndpointId(0), at(900, TODAY - 1_200));
        let mut time = 0;
        for (index, gap) in gaps.iter().enumerate() {
            time += gap;
            pool.on_head(EndpointId(0), at(1_001 + index as u64, TODAY + time), now + seconds(time));
        }
        old(&pool.status(now + seconds(time + 600)))
    };
    assert!(!measured(&[]));
    assert!(!measured(&[12; 7]));
    assert!(measured(&[12; 8]));
    assert!(measured(&[12, 12, 12, 12, 40, 12, 12, 12]), "a slot or two may be missed");
    assert!(!measured(&[12, 12, 12, 12, 12, 12, 12, 600]), "blocks on demand");

    // To be judged again is no block.
    let mut pool = current(1, now);
    pool.config.block_time = None;
    for _ in 0..10 {
        pool.set_identity(EndpointId(0), Identity::Verified, now);
    }
    assert!(!old(&pool.status(now + seconds(600))));
}

#[test]
fn a_head_that_is_shown_again_ends_no_wait_of_its_own() {
    let now = Instant::now();
    let mut pool = current(2, now);
    assert_eq!(pool.on_height(EndpointId(0), 1_007, now), Plausible::Yes);
    assert_eq!(order(&mut pool, Need::Reached(1_007), now), "a");
    pool.on_head(EndpointId(0), at(1_000, TODAY), now);
    assert_eq!(
        order(&mut pool, Need::Reached(1_007), now),
        "",
        "what it shows counts more than what it named"
    );
}
