use std::num::NonZeroU32;

use alloy_primitives::B256;

use super::*;
use crate::{
    endpoint::{Budget, Header, Identity, Member, PoolConfig, Role},
    failure::FaultKind,
    units::EndpointName,
};

mod properties;
mod tables;

const HEAD: u64 = 10_000;
const STATE: DataKind = DataKind::State;
const BLOCKS: DataKind = DataKind::Blocks;

fn header(number: u64) -> Header {
    let hash = |n: u64| B256::left_padding_from(&n.to_be_bytes());
    Header { number, hash: hash(number), parent: hash(number.saturating_sub(1)), timestamp: number }
}

/// Endpoints `a`, `b`, ... with these roles, all at the head.
pub(super) fn pool(roles: &[Role], now: Instant) -> Pool {
    let name = |index: usize| EndpointName::new(((b'a' + index as u8) as char).to_string());
    let names = roles.iter().enumerate().map(|(index, role)| (name(index), *role));
    let mut pool = Pool::new(PoolConfig::default(), (7, 1), names);
    for id in pool.ids().collect::<Vec<_>>() {
        pool.set_identity(id, Identity::Verified, now);
        pool.on_head(id, header(HEAD), now);
    }
    pool
}

/// What an endpoint says, after so much time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Says {
    Data,
    Null,
    Pruned(Option<u64>),
    NotYet,
    Dead,
    /// To wait for so many seconds.
    Busy(u64),
    /// Nothing, until the attempt times out.
    Hangs,
}

/// Runs a read on simulated time. Returns the calls (`a`, `b`), the waits in between (`~`), the end, and the
/// milliseconds that it took.
pub(super) fn run(
    pool: &mut Pool,
    (kind, height): (DataKind, u64),
    mut says: impl FnMut(&str, Duration) -> Says,
    begun: Instant,
) -> (String, Done, u64) {
    let asks = Asks::At { kind, height };
    let times = (Duration::from_secs(20), Duration::from_secs(60));
    let mut now = begun;
    let mut read = Read::new(pool, "m".into(), asks, Need::Current, None, &ReadConfig::default(), times, now);
    let mut story = String::new();
    for _ in 0..1_000 {
        match read.next(pool, now) {
            Step::Done(done) => return (story, done, (now - begun).as_millis() as u64),
            Step::Wait(wait) => {
                assert!(!wait.is_zero(), "a wait that does not end: {story}");
                story.push('~');
                now += wait;
            }
            Step::Ask(pick, timeout) => {
                let name = pool.get(pick.id).name.as_str().to_owned();
                story.push_str(&name);
                let (verdict, holding, took) = match says(&name, now - begun) {
                    Says::Data => (Verdict::Answer, Holding::All, 1),
                    Says::Null => (Verdict::Answer, Holding::Nothing, 1),
                    Says::Pruned(oldest) => (Verdict::Missing { kind, oldest }, Holding::All, 1),
                    Says::NotYet => (Verdict::NotYet, Holding::All, 1),
                    Says::Dead => (Verdict::Fault(FaultKind::Refused), Holding::All, 1),
                    Says::Busy(seconds) => {
                        let after = Some(Duration::from_secs(seconds));
                        (Verdict::RateLimited { after }, Holding::All, 1)
                    }
                    Says::Hangs => {
                        (Verdict::Fault(FaultKind::Timeout), Holding::All, timeout.as_millis() as u64)
                    }
                };
                now += Duration::from_millis(took);
                pool.end(pick, "m", &verdict, now);
                read.told(pool, pick.id, &verdict, holding, now);
            }
        }
    }
    panic!("it does not end: {story}");
}

/// The same answers whatever the time.
fn always(answers: &'static [(&'static str, Says)]) -> impl FnMut(&str, Duration) -> Says {
    move |name, _| answers.iter().find(|(other, _)| *other == name).expect("every endpoint has its answer").1
}

mod deep {
    use super::*;

    #[test]
    fn a_miss_of_a_pruned_node_goes_to_an_archive_and_is_learned() {
        let now = Instant::now();
        for miss in [Says::Null, Says::Pruned(None)] {
            let mut pool = pool(&[Role::Read; 3], now);
            let mut ask = |height| {
                let says = move |name: &str, _| match name {
                    "c" => Says::Data,
                    _ => miss,
                };
                run(&mut pool, (BLOCKS, height), says, now)
            };
            assert_eq!(ask(50).0, "abc");
            assert_eq!(ask(50), ("c".into(), Done::Answered, 1), "known by now");
            assert_eq!(
                ask(40),
                ("c".into(), Done::Answered, 1),
                "deeper than where a and b are known to end"
            );
            assert_eq!(ask(60).0, "ac", "a may hold this one; then c, which is proven");
        }
    }

    #[test]
    fn an_archive_that_rests_is_asked_before_a_null_of_another_is_believed() {
        let now = Instant::now();
        let after = Some(Duration::from_secs(3));
        for verdict in [Verdict::RateLimited { after }, Verdict::Fault(FaultKind::Refused)] {
            let mut pool = pool(&[Role::Read; 3], now);
            pool.history_shown(EndpointId(2), BLOCKS, 1);
            for _ in 0..5 {
                let pick = pool.begin_at(EndpointId(2), now);
                pool.end(pick, "m", &verdict, now);
            }
            let says = always(&[("a", Says::Null), ("b", Says::Null), ("c", Says::Data)]);
            assert_eq!(run(&mut pool, (BLOCKS, 50), says, now).0, "abc", "{verdict:?}");
        }
    }

    #[test]
    fn a_second_opinion_leaves_those_that_rest_alone() {
        let now = Instant::now();
        let mut pool = pool(&[Role::Read; 2], now);
        let pick = pool.begin_at(EndpointId(1), now);
        pool.end(pick, "m", &Verdict::RateLimited { after: Some(Duration::from_secs(3)) }, now);
        let times = (Duration::from_secs(20), Duration::from_secs(60));
        let config = ReadConfig::default();
        let mut read = Read::new(&pool, "m".into(), Asks::ByHash, Need::Current, None, &config, times, now);
        read.missed_by(EndpointId(0));
        assert_eq!(read.next(&mut pool, now), Step::Done(Done::Kept), "what the first said");
    }

    #[test]
    fn an_archives_null_is_the_answer() {
        let now = Instant::now();
        let mut pool = pool(&[Role::Read; 3], now);
        pool.history_shown(EndpointId(0), BLOCKS, 1);
        let got = run(&mut pool, (BLOCKS, 50), always(&[("a", Says::Null)]), now);
        assert_eq!(got, ("a".into(), Done::Answered, 1));
    }

    #[test]
    fn those_that_are_proven_are_asked_before_those_of_unknown_depth() {
        let now = Instant::now();
        let mut pool = pool(&[Role::Read; 4], now);
        pool.history_shown(EndpointId(3), STATE, 1);
        pool.history_refused(EndpointId(1), (STATE, 500), None, now);
        let answers = always(&[("a", Says::Pruned(None)), ("d", Says::Dead), ("c", Says::Data)]);
        assert_eq!(run(&mut pool, (STATE, 50), answers, now).0, "adc", "b is known not to hold it");
    }

    #[test]
    fn when_nobody_holds_it_the_error_names_the_lowest_that_anybody_does() {
        let now = Instant::now();
        let mut pool = pool(&[Role::Read; 2], now);
        let answers = always(&[("a", Says::Pruned(Some(9_000))), ("b", Says::Pruned(Some(8_000)))]);
        let (story, done, _) = run(&mut pool, (STATE, 50), answers, now);
        assert_eq!((story.as_str(), done), ("ab", Done::Pruned { height: 50, oldest: Some(8_000) }));
    }

    #[test]
    fn nulls_of_unknown_depth_stay_null_once_everybody_was_asked() {
        let now = Instant::now();
        let answers = always(&[("a", Says::Null), ("b", Says::Null)]);
        let got = run(&mut pool(&[Role::Read; 2], now), (BLOCKS, 50), answers, now);
        assert_eq!(got, ("ab".into(), Done::Kept, 2));
    }

    #[test]
    fn faults_are_not_misses() {
        let now = Instant::now();
        let answers = always(&[("a", Says::Dead), ("b", Says::Dead)]);
        let got = run(&mut pool(&[Role::Read; 2], now), (STATE, 50), answers, now);
        assert_eq!(got, ("ab".into(), Done::NobodyLeft, 2));
    }

    #[test]
    fn a_null_is_not_believed_while_one_that_may_hold_it_has_only_failed() {
        let now = Instant::now();
        for first in [Says::Null, Says::Pruned(None)] {
            let mut pool = pool(&[Role::Read; 2], now);
            pool.history_shown(EndpointId(1), BLOCKS, 1);
            let says = move |name: &str, _| if name == "a" { first } else { Says::Dead };
            let (story, done, _) = run(&mut pool, (BLOCKS, 50), says, now);
            assert_eq!((story.as_str(), done), ("ab", Done::NobodyLeft));
        }
    }
}

mod frontier {
    use super::*;

    fn origin_first() -> [Role; 3] {
        [Role::Origin, Role::Read, Role::Read]
    }

    #[test]
    fn what_is_there_costs_one_call() {
        let now = Instant::now();
        let got = run(&mut pool(&origin_first(), now), (BLOCKS, HEAD), always(&[("a", Says::Data)]), now);
        assert_eq!(got, ("a".into(), Done::Answered, 1));
    }

    #[test]
    fn an_origin_that_is_late_is_waited_for_alone() {
        let now = Instant::now();
        let late = |_: &str, at: Duration| match at < Duration::from_secs(1) {
            true => Says::Null,
            false => Says::Data,
        };
        let (story, done, took) = run(&mut pool(&origin_first(), now), (BLOCKS, HEAD + 1), late, now);
        assert!(story.chars().all(|step| "a~".contains(step)), "{story}");
        assert_eq!(done, Done::Answered);
        assert!((1_000..2_000).contains(&took), "{took}");
    }

    #[test]
    fn a_fast_failure_of_the_origin_ends_the_grace_at_once() {
        let now = Instant::now();
        let answers = always(&[("a", Says::Dead), ("b", Says::Data)]);
        let got = run(&mut pool(&origin_first(), now), (BLOCKS, HEAD), answers, now);
        assert_eq!(got, ("aab".into(), Done::Answered, 3), "the whole chain, the origin included");
    }

    #[test]
    fn a_stall_of_the_origin_costs_at_most_the_grace() {
        let now = Instant::now();
        let answers = always(&[("a", Says::Hangs), ("b", Says::Data)]);
        let (story, done, took) = run(&mut pool(&origin_first(), now), (BLOCKS, HEAD), answers, now);
        assert_eq!((story.as_str(), done), ("aab", Done::Answered));
        assert_eq!(took, 6_000 + 2_000 + 1);
    }

    #[test]
    fn an_open_breaker_of_the_origin_suspends_the_grace() {
        let now = Instant::now();
        let mut pool = pool(&origin_first(), now);
        for _ in 0..5 {
            pool.end(Pick { id: EndpointId(0), probe: false }, "m", &Verdict::Fault(FaultKind::Refused), now);
        }
        let got = run(&mut pool, (BLOCKS, HEAD), always(&[("b", Says::Data)]), now);
        assert_eq!(got, ("b".into(), Done::Answered, 1));
    }

    #[test]
    fn an_origin_that_does_not_hold_a_deep_block_is_not_waited_for() {
        let now = Instant::now();
        let mut pool = pool(&origin_first(), now);
        pool.history_refused(EndpointId(0), (BLOCKS, HEAD - 100), None, now);
        let (story, done, _) =
            run(&mut pool, (BLOCKS, HEAD - 200), always(&[("a", Says::Null), ("b", Says::Data)]), now);
        assert_eq!((story.as_str(), done), ("ab", Done::Answered));
    }

    #[test]
    fn what_never_comes_ends_with_the_miss_after_the_grace_and_one_round() {
        let now = Instant::now();
        let answers = always(&[("a", Says::Null), ("b", Says::Hangs), ("c", Says::Null)]);
        let (story, done, took) = run(&mut pool(&origin_first(), now), (BLOCKS, HEAD + 5), answers, now);
        assert!(story.ends_with("abc"), "{story}");
        assert_eq!(done, Done::Kept);
        assert!((8_000..8_100).contains(&took), "the grace, and what b may hang: {took}");
    }

    #[test]
    fn without_an_origin_everybody_is_asked_round_by_round_within_the_grace() {
        let now = Instant::now();
        let late = |name: &str, at: Duration| match name == "b" && at >= Duration::from_millis(400) {
            true => Says::Data,
            false => Says::NotYet,
        };
        let (story, done, took) = run(&mut pool(&[Role::Read; 2], now), (STATE, HEAD + 1), late, now);
        assert!(story.starts_with("ab~ab~"), "{story}");
        assert_eq!(done, Done::Answered);
        assert!(took < 1_000, "{took}");
    }

    #[test]
    fn an_origin_that_says_gone_is_not_waited_for() {
        let now = Instant::now();
        let answers = always(&[("a", Says::Pruned(None)), ("b", Says::Data)]);
        let (_, done, took) = run(&mut pool(&origin_first(), now), (STATE, HEAD - 200), answers, now);
        assert_eq!(done, Done::Answered);
        assert!(took < 50, "{took}");
    }

    #[test]
    fn where_everybody_says_gone_it_is_gone_at_once() {
        let now = Instant::now();
        let answers = always(&[("a", Says::Pruned(None)), ("b", Says::Pruned(None))]);
        let (story, done, took) = run(&mut pool(&[Role::Read; 2], now), (STATE, HEAD - 200), answers, now);
        assert_eq!(
            (story.as_str(), done, took),
            ("ab", Done::Pruned { height: HEAD - 200, oldest: None }, 2)
        );
    }

    #[test]
    fn one_that_hangs_beside_one_that_is_late_costs_little() {
        let now = Instant::now();
        let late = |name: &str, at: Duration| match name {
            "a" if at < Duration::from_secs(1) => Says::Null,
            "a" => Says::Data,
            _ => Says::Hangs,
        };
        let (_, done, took) = run(&mut pool(&[Role::Read; 2], now), (BLOCKS, HEAD + 1), late, now);
        assert_eq!(done, Done::Answered);
        assert!(took < 3_000, "{took}");
    }

    #[test]
    fn a_single_endpoint_is_asked_again_within_the_grace() {
        let now = Instant::now();
        for role in [Role::Read, Role::Origin] {
            let late = |_: &str, at: Duration| match at < Duration::from_secs(2) {
                true => Says::Null,
                false => Says::Data,
            };
            let (_, done, took) = run(&mut pool(&[role], now), (BLOCKS, HEAD + 1), late, now);
            assert_eq!(done, Done::Answered);
            assert!(took < 3_500, "{took}");
        }
    }

    #[test]
    fn dead_endpoints_are_not_waited_for() {
        let now = Instant::now();
        let got = run(&mut pool(&[Role::Read], now), (BLOCKS, HEAD), always(&[("a", Says::Dead)]), now);
        assert_eq!(got, ("a".into(), Done::NobodyLeft, 1));
    }

    #[test]
    fn far_above_the_head_whoever_is_asked_first_has_the_answer() {
        let now = Instant::now();
        let got =
            run(&mut pool(&origin_first(), now), (BLOCKS, HEAD + 257), always(&[("a", Says::Null)]), now);
        assert_eq!(got.0, "a");
    }
}

/// A read that begins now.
fn read(pool: &Pool, asks: Asks, now: Instant) -> Read {
    let times = (Duration::from_secs(20), Duration::from_secs(60));
    Read::new(pool, "m".into(), asks, Need::Current, None, &ReadConfig::default(), times, now)
}

/// Asks the next endpoint, which replies this.
fn step(read: &mut Read, pool: &mut Pool, verdict: &Verdict, holding: Holding, now: Instant) -> Told {
    let Step::Ask(pick, _) = read.next(pool, now) else { panic!("nobody is left") };
    pool.end(pick, "m", verdict, now);
    read.told(pool, pick.id, verdict, holding, now)
}

#[test]
fn one_that_rests_is_left_alone_once_another_has_spoken_even_if_it_was_an_error() {
    let now = Instant::now();
    for (verdict, told, next) in [
        (Verdict::Unclassified, Told::Keep, Step::Done(Done::Kept)),
        (
            Verdict::Fault(FaultKind::Refused),
            Told::Drop,
            Step::Ask(Pick { id: EndpointId(1), probe: false }, Duration::from_secs(20)),
        ),
    ] {
        let mut pool = pool(&[Role::Read; 2], now);
        for _ in 0..5 {
            pool.end(Pick { id: EndpointId(1), probe: false }, "m", &Verdict::Fault(FaultKind::Refused), now);
        }
        let mut read = read(&pool, Asks::Current, now);
        assert_eq!(step(&mut read, &mut pool, &verdict, Holding::All, now), told);
        assert_eq!(read.next(&mut pool, now), next);
    }
}

#[test]
fn a_read_tells_since_when_it_waits_for_what_is_about_to_come() {
    let now = Instant::now();
    let mut pool = pool(&[Role::Origin, Role::Read], now);
    let mut read = read(&pool, Asks::At { kind: BLOCKS, height: HEAD + 1 }, now);
    step(&mut read, &mut pool, &Verdict::NotYet, Holding::All, now);
    assert_eq!(read.waiting_since(), None, "it has only been asked");
    let Step::Wait(wait) = read.next(&mut pool, now) else { panic!("it may come") };
    step(&mut read, &mut pool, &Verdict::NotYet, Holding::All, now + wait);
    assert!(matches!(read.next(&mut pool, now + wait), Step::Wait(_)));
    assert_eq!(read.waiting_since(), Some(now));
}

#[test]
fn above_the_head_the_first_word_counts_an_error_too() {
    let now = Instant::now();
    let mut pool = pool(&[Role::Read; 2], now);
    let mut read = read(&pool, Asks::At { kind: BLOCKS, height: HEAD * 9 }, now);
    assert_eq!(step(&mut read, &mut pool, &Verdict::Unclassified, Holding::All, now), Told::Keep);
    assert_eq!(read.next(&mut pool, now), Step::Done(Done::Kept));
}

#[test]
fn one_whose_budget_is_used_up_is_waited_for_where_it_is_needed() {
    let now = Instant::now();
    let second = EndpointId(1);
    let next = |height, verdict: &Verdict| {
        let mut pool = pool(&[Role::Read], now);
        let budget = Budget::new(NonZeroU32::new(1), None);
        pool.add(Member { name: "b".into(), host: None, role: Role::Read, budget });
        pool.set_identity(second, Identity::Verified, now);
        pool.on_head(second, header(HEAD), now);
        pool.begin_at(second, now);
        let mut read = read(&pool, Asks::At { kind: BLOCKS, height }, now);
        step(&mut read, &mut pool, verdict, Holding::All, now);
        read.next(&mut pool, now)
    };
    for height in [HEAD * 9, HEAD, 50] {
        let failed = next(height, &Verdict::Fault(FaultKind::Refused));
        assert!(matches!(failed, Step::Wait(_)), "{height}: {failed:?}");
    }
    assert!(matches!(next(50, &Verdict::Unclassified), Step::Wait(_)), "it may have it");
    assert_eq!(next(HEAD * 9, &Verdict::Unclassified), Step::Done(Done::Kept), "the first word counts");
}

#[test]
fn a_rest_that_ends_with_the_read_is_not_waited_for() {
    let now = Instant::now();
    for (seconds, waits) in [(59, true), (60, false)] {
        let mut pool = pool(&[Role::Read], now);
        let mut read = read(&pool, Asks::Current, now);
        let limited = Verdict::RateLimited { after: Some(Duration::from_secs(seconds)) };
        step(&mut read, &mut pool, &limited, Holding::All, now);
        assert_eq!(matches!(read.next(&mut pool, now), Step::Wait(_)), waits, "{seconds}");
    }
}

#[test]
fn each_one_that_had_nothing_in_the_deep_counts_as_a_second_opinion() {
    let now = Instant::now();
    let mut pool = pool(&[Role::Read; 3], now);
    let mut read = read(&pool, Asks::At { kind: BLOCKS, height: 50 }, now);
    for opinions in 1..=3 {
        step(&mut read, &mut pool, &Verdict::Answer, Holding::Nothing, now);
        assert_eq!(read.second_opinions(), opinions);
    }
    let mut read = self::read(&pool, Asks::At { kind: BLOCKS, height: HEAD }, now);
    step(&mut read, &mut pool, &Verdict::Answer, Holding::Nothing, now);
    assert_eq!(read.second_opinions(), 0, "what is about to come is waited for");
}

#[test]
fn one_that_was_asked_in_a_batch_is_not_asked_again_in_that_round() {
    let now = Instant::now();
    let mut pool = pool(&[Role::Read; 2], now);
    let mut read = read(&pool, Asks::At { kind: BLOCKS, height: 50 }, now);
    read.asked(EndpointId(0));
    assert_eq!(read.tried(), [EndpointId(0)]);
    let Step::Ask(pick, _) = read.next(&mut pool, now) else { panic!("there is another") };
    assert_eq!((pick.id, read.tried()), (EndpointId(1), &[EndpointId(0), EndpointId(1)][..]));
}

#[test]
fn where_nobody_answers_a_null_is_handed_out_before_a_refusal_and_that_before_another_error() {
    let now = Instant::now();
    let error = (Verdict::Unsupported, Holding::All);
    let refusal = (Verdict::Missing { kind: BLOCKS, oldest: None }, Holding::All);
    let null = (Verdict::Answer, Holding::Nothing);
    let told = |replies: [&(Verdict, Holding); 3]| {
        let mut pool = pool(&[Role::Read; 3], now);
        let mut read = read(&pool, Asks::At { kind: BLOCKS, height: HEAD }, now);
        let mut id = 0..;
        replies.map(|(verdict, holding)| {
            let id = EndpointId(id.next().expect("it has no end"));
            read.told(&mut pool, id, verdict, *holding, now)
        })
    };
    assert_eq!(told([&error, &refusal, &null]), [Told::Keep; 3]);
    assert_eq!(told([&null, &refusal, &error]), [Told::Keep, Told::Drop, Told::Drop]);
    assert_eq!(told([&refusal, &error, &refusal]), [Told::Keep, Told::Drop, Told::Drop]);
}

#[test]
fn what_is_deep_is_asked_of_one_that_is_not_verified_yet_where_there_is_no_other() {
    let now = Instant::now();
    let mut pool = pool(&[Role::SendOnly, Role::Read], now);
    pool.set_identity(EndpointId(1), Identity::Unverified, now);
    let got = run(&mut pool, (BLOCKS, 50), always(&[("b", Says::Data)]), now);
    assert_eq!(got, ("b".into(), Done::Answered, 1));
}

#[test]
fn an_endpoint_that_is_only_sent_to_is_never_read_from() {
    let now = Instant::now();
    let mut pool = pool(&[Role::SendOnly, Role::Read], now);
    let got = run(&mut pool, (BLOCKS, 50), always(&[("b", Says::Data)]), now);
    assert_eq!(got, ("b".into(), Done::Answered, 1));
}

/// Busy for so many seconds at first, then well.
fn busy_once(seconds: u64) -> impl FnMut(&str, Duration) -> Says {
    move |name, at| match name {
        "a" if at < Duration::from_millis(100) => Says::Busy(seconds),
        "a" => Says::Data,
        _ => Says::Dead,
    }
}

#[test]
fn when_nobody_else_answers_the_one_that_asked_us_to_wait_is_asked_again_after_that_time() {
    let now = Instant::now();
    // At the frontier, in the deep, and above the head.
    for height in [HEAD, 50, HEAD + 10_000] {
        let mut pool = pool(&[Role::Read, Role::Read], now);
        let got = run(&mut pool, (BLOCKS, height), busy_once(3), now);
        assert_eq!(got, ("ab~a".into(), Done::Answered, 3_002), "{height}");
    }
}

#[test]
fn a_wait_beyond_the_deadline_is_not_begun() {
    let now = Instant::now();
    let got = run(&mut pool(&[Role::Read], now), (BLOCKS, HEAD), busy_once(90), now);
    assert_eq!(got, ("a".into(), Done::NobodyLeft, 1));
    let always_busy = |_: &str, _: Duration| Says::Busy(0);
    let (story, done, took) = run(&mut pool(&[Role::Read], now), (BLOCKS, HEAD), always_busy, now);
    assert_eq!(done, Done::NobodyLeft);
    assert!(story.len() < 500 && took < 60_000, "{took} ms: {story}");
}

/// The same endpoints, and nobody has shown a head.
pub(super) fn headless(roles: &[Role], now: Instant) -> Pool {
    let name = |index: usize| EndpointName::new(((b'a' + index as u8) as char).to_string());
    let names = roles.iter().enumerate().map(|(index, role)| (name(index), *role));
    let mut pool = Pool::new(PoolConfig::default(), (7, 1), names);
    for id in pool.ids().collect::<Vec<_>>() {
        pool.set_identity(id, Identity::Verified, now);
    }
    pool
}
