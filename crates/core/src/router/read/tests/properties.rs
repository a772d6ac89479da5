//! What holds of every read, whatever the endpoints say.

use proptest::prelude::*;

use super::*;

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        Just(Says::Data),
        Just(Says::Null),
        Just(Says::NotYet),
        Just(Says::Dead),
        Just(Says::Hangs),
        proptest::option::of(0..HEAD).prop_map(Says::Pruned),
        (0_u64..100).prop_map(Says::Busy),
    ]
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Read), Just(Role::Origin), Just(Role::SendOnly)]
}

fn asks() -> impl Strategy<Value = Asks> {
    let kind = prop_oneof![
        Just(DataKind::State),
        Just(DataKind::Blocks),
        Just(DataKind::Logs),
        Just(DataKind::Transactions)
    ];
    let height = prop_oneof![0..HEAD, HEAD - 300..HEAD + 300, HEAD * 2..HEAD * 3];
    prop_oneof![
        Just(Asks::Current),
        Just(Asks::ByHash),
        Just(Asks::OfBlock),
        (kind, height).prop_map(|(kind, height)| Asks::At { kind, height }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_read_ends_and_asks_whom_it_may(
        roles in proptest::collection::vec(role(), 1..5),
        wrong in proptest::option::of(0_usize..5),
        replies in proptest::collection::vec(says(), 1..40),
        asks in asks(),
        reached in any::<bool>(),
    ) {
        let begun = Instant::now();
        let mut pool = pool(&roles, begun);
        let wrong = wrong.map(EndpointId).filter(|id| id.0 < roles.len());
        if let Some(id) = wrong {
            pool.set_identity(id, Identity::Wrong("another chain".into()), begun);
        }
        let times = (Duration::from_secs(20), Duration::from_secs(60));
        let need = if reached { Need::Reached(HEAD) } else { Need::Current };
        let mut read = Read::new(&pool, "m".into(), asks, need, None, &ReadConfig::default(), times, begun);
        let mut now = begun;
        let mut round: Vec<EndpointId> = Vec::new();
        let mut phases = 0;
        let mut answered = false;
        let mut replies = replies.into_iter().cycle();
        for step in 0.. {
            prop_assert!(step < 2_000, "it does not end");
            match read.next(&mut pool, now) {
                Step::Done(done) => {
                    prop_assert!(now <= begun + times.1 + Duration::from_millis(2_000), "{:?}", now - begun);
                    prop_assert_eq!(done == Done::Answered, answered);
                    break;
                }
                Step::Wait(wait) => {
                    prop_assert!(!wait.is_zero(), "a wait without an end");
                    prop_assert!(now + wait <= begun + times.1, "a wait beyond the deadline");
                    now += wait;
                    round.clear();
                }
                Step::Ask(pick, timeout) => {
                    prop_assert!(!answered, "asked although it was answered");
                    prop_assert!(Some(pick.id) != wrong, "asked one of another chain");
                    prop_assert!(roles[pick.id.0] != Role::SendOnly, "read where it is only sent to");
                    prop_assert!(timeout <= times.0 && now + timeout <= begun + times.1);
                    if round.contains(&pick.id) {
                        // The grace for the origin ends in one round over everybody, the origin included.
                        phases += 1;
                        prop_assert!(phases <= 1 && roles[pick.id.0] == Role::Origin, "asked twice in a round");
                        round.clear();
                    }
                    round.push(pick.id);
                    let (verdict, holding, took) = match replies.next().expect("they go round") {
                        Says::Data => (Verdict::Answer, Holding::All, 1),
                        Says::Null => (Verdict::Answer, Holding::Nothing, 1),
                        Says::Pruned(oldest) => {
                            (Verdict::Missing { kind: DataKind::State, oldest }, Holding::All, 1)
                        }
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
                    let told = read.told(&mut pool, pick.id, &verdict, holding, now);
                    answered = told == Told::Answer;
                    if verdict == Verdict::Answer && holding == Holding::All {
                        prop_assert!(answered, "data is the answer");
                    }
                }
            }
        }
    }
}
