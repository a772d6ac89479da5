//! What holds whatever happens: generated histories of a pool.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::endpoint::{Budget, Member, Phase, Standing};

#[derive(Clone, Debug)]
enum Event {
    Head { endpoint: usize, number: u64, late: u64 },
    Identity { endpoint: usize, identity: Identity },
    Begin { need: Need, prefer: usize, resting: Resting },
    Track { endpoint: usize },
    End { call: usize, verdict: Verdict },
    Abandon { call: usize },
    Unheard { endpoint: usize },
    Add { role: Role, budget: Budget },
    Remove { endpoint: usize },
    Replace { endpoint: usize },
    Pass(Duration),
}

fn budget() -> impl Strategy<Value = Budget> {
    let bound =
        || prop::option::weighted(0.3, (1_u32..5).prop_map(|most| most.try_into().expect("not zero")));
    (bound(), bound()).prop_map(|(at_once, a_second)| Budget::new(at_once, a_second))
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![4 => Just(Role::Read), 1 => Just(Role::Origin), 1 => Just(Role::SendOnly), 1 => Just(Role::Private)]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        6 => Just(Verdict::Answer),
        4 => Just(Verdict::Fault(FaultKind::Refused)),
        2 => Just(Verdict::Fault(FaultKind::Timeout)),
        1 => Just(Verdict::RateLimited { after: None }),
        1 => Just(Verdict::RateLimited { after: Some(Duration::from_secs(7)) }),
        1 => Just(Verdict::Unsupported),
        1 => Just(Verdict::NotYet),
        1 => Just(Verdict::WrongIdentity),
        1 => Just(Verdict::Unclassified),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let any = || 0_usize..64;
    let need = prop_oneof![
        3 => Just(Need::Current),
        1 => Just(Need::Send),
        1 => (95_u64..130).prop_map(Need::AtHeight),
        1 => (95_u64..130).prop_map(Need::Reached),
    ];
    let identity = prop_oneof![
        6 => Just(Identity::Verified),
        1 => Just(Identity::Unknown),
        1 => Just(Identity::Unverified),
        1 => Just(Identity::Wrong("x".into())),
    ];
    let resting = prop_oneof![3 => Just(Resting::Ask), 1 => Just(Resting::Leave)];
    let number = prop_oneof![8 => 90_u64..130, 1 => 0_u64..100_000];
    prop_oneof![
        6 => (any(), number, 0_u64..100).prop_map(|(endpoint, number, late)| Event::Head { endpoint, number, late }),
        4 => (any(), identity).prop_map(|(endpoint, identity)| Event::Identity { endpoint, identity }),
        8 => (need, any(), resting).prop_map(|(need, prefer, resting)| Event::Begin { need, prefer, resting }),
        3 => any().prop_map(|endpoint| Event::Track { endpoint }),
        8 => (any(), verdict()).prop_map(|(call, verdict)| Event::End { call, verdict }),
        2 => any().prop_map(|call| Event::Abandon { call }),
        1 => any().prop_map(|endpoint| Event::Unheard { endpoint }),
        1 => (role(), budget()).prop_map(|(role, budget)| Event::Add { role, budget }),
        1 => any().prop_map(|endpoint| Event::Remove { endpoint }),
        1 => any().prop_map(|endpoint| Event::Replace { endpoint }),
        4 => (0_u64..40_000).prop_map(|millis| Event::Pass(Duration::from_millis(millis))),
    ]
}

struct World {
    pool: Pool,
    now: Instant,
    begun: Instant,
    open: Vec<Pick>,
}

impl World {
    fn new(members: Vec<(Role, Budget)>) -> Self {
        let name = |i: usize| EndpointName::new(format!("e{i}"));
        let member = |(i, (role, budget))| Member { name: name(i), host: None, role, budget };
        let now = Instant::now();
        let pool = Pool::new(PoolConfig::default(), (7, 1), members.into_iter().enumerate().map(member));
        let mut world = Self { pool, now, begun: now, open: Vec::new() };
        for id in world.pool.ids().collect::<Vec<_>>() {
            world.pool.set_identity(id, Identity::Verified, now);
            world.pool.on_head(id, header(100), now);
        }
        world
    }

    /// One of all that ever were, those that were removed too.
    fn any(&self, index: usize) -> EndpointId {
        EndpointId(index % self.pool.endpoints.len())
    }

    fn there(&self, index: usize) -> Option<EndpointId> {
        let ids: Vec<_> = self.pool.ids().collect();
        (!ids.is_empty()).then(|| ids[index % ids.len()])
    }

    fn call(&mut self, index: usize) -> Option<Pick> {
        (!self.open.is_empty()).then(|| self.open.swap_remove(index % self.open.len()))
    }

    fn happens(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Head { endpoint, number, late } => {
                let elapsed = now.duration_since(self.begun).as_secs();
                self.pool.tell_time(now, Duration::from_secs(1_000 + elapsed));
                let header = Header { timestamp: 1_050 + elapsed - late.min(1_000), ..header(number) };
                self.pool.on_head(self.any(endpoint), header, now);
            }
            Event::Identity { endpoint, identity } => {
                self.pool.set_identity(self.any(endpoint), identity, now);
            }
            Event::Begin { need, prefer, resting } => self.begin(need, prefer, resting),
            Event::Track { endpoint } => {
                let id = self.any(endpoint);
                if let Some(pick) = self.pool.begin_tracking(id, now) {
                    assert!(!self.pool.get(id).is_removed());
                    self.open.push(pick);
                }
            }
            Event::End { call, verdict } => {
                if let Some(pick) = self.call(call) {
                    self.pool.end(pick, "m", &verdict, now);
                }
            }
            Event::Abandon { call } => {
                if let Some(pick) = self.call(call) {
                    self.pool.abandon(pick, now);
                }
            }
            Event::Unheard { endpoint } => self.pool.unheard(self.any(endpoint), now),
            Event::Add { role, budget } => {
                let name = EndpointName::new(format!("e{}", self.pool.endpoints.len()));
                self.pool.add(Member { name, host: None, role, budget });
            }
            Event::Remove { endpoint } => {
                if let Some(id) = self.there(endpoint).filter(|_| self.pool.order.len() > 1) {
                    self.pool.remove(id, now);
                }
            }
            Event::Replace { endpoint } => {
                if let Some(old) = self.there(endpoint) {
                    let (name, role) = (self.pool.get(old).name.clone(), self.pool.get(old).role);
                    let new = self.pool.add_candidate((name, role).into());
                    self.pool.set_identity(new, Identity::Verified, now);
                    self.pool.replace(old, new, now);
                }
            }
            Event::Pass(time) => self.now += time,
        }
    }

    fn begin(&mut self, need: Need, prefer: usize, resting: Resting) {
        let now = self.now;
        let prefer = prefer.is_multiple_of(3).then(|| self.any(prefer));
        let expected = self.sticky_by_scan();
        // Never empty (E5): whoever may serve, and is within its budget, is found, or one that is well is waited for.
        let able = self
            .pool
            .ids()
            .any(|id| self.pool.barred(id, need).is_none() && self.pool.get(id).meter.wait(now).is_none());
        match self.pool.begin(need, "m", prefer, &[], resting, now) {
            Some(pick) => {
                let endpoint = self.pool.get(pick.id);
                assert!(!endpoint.is_removed());
                match need {
                    Need::Send => assert_eq!(endpoint.identity, Identity::Verified),
                    Need::Current | Need::AtHeight(_) | Need::Reached(_) => {
                        assert!(matches!(endpoint.identity, Identity::Verified | Identity::Unverified));
                        assert!(endpoint.role.is_read_from());
                    }
                }
                self.open.push(pick);
            }
            None if resting == Resting::Ask => {
                let waited = self.pool.wait(need, &[], resting, now).is_some();
                assert!(!able || waited, "the pool has emptied itself");
            }
            None => {}
        }
        assert_eq!(self.pool.sticky(), expected, "what is kept at hand says what a scan would");
    }

    /// The endpoint that a look at every endpoint would make the sticky one.
    fn sticky_by_scan(&self) -> EndpointId {
        let (pool, now) = (&self.pool, self.now);
        let usable =
            |id: EndpointId| pool.barred(id, Need::Current).is_none() && pool.get(id).rests(now).is_none();
        let held = |id: EndpointId| {
            pool.get(id).well_since.is_some_and(|since| now.duration_since(since) >= pool.config.min_hold)
        };
        let before = pool.ids().take_while(|id| *id != pool.sticky).find(|id| usable(*id) && held(*id));
        before.unwrap_or_else(|| match usable(pool.sticky) {
            true => pool.sticky,
            false => pool.ids().find(|id| usable(*id)).unwrap_or(pool.sticky),
        })
    }

    fn holds(&self) {
        let (pool, now) = (&self.pool, self.now);
        for index in 0..pool.endpoints.len() {
            let id = EndpointId(index);
            let endpoint = pool.get(id);
            let open = self.open.iter().filter(|pick| pick.id == id);
            assert_eq!(endpoint.meter.in_flight() as usize, open.clone().count(), "calls are counted");
            match endpoint.phase() {
                Phase::Closed => assert_eq!(endpoint.probe_at(), None),
                Phase::Open => assert!(endpoint.probe_at().is_some(), "there is always a next probe"),
                Phase::HalfOpen => {
                    assert!(open.clone().any(|pick| pick.probe), "somebody has the probe's place")
                }
            }
        }
        for need in [Need::Current, Need::Send] {
            if let Some(wait) = pool.wait(need, &[], Resting::Ask, now) {
                assert!(wait > Duration::ZERO && wait <= Duration::from_secs(60), "{wait:?}");
            }
        }
        let heads = pool.ids().map(|id| pool.get(id)).filter(|it| it.is_identified() && !it.doubted);
        let top = heads.filter_map(|endpoint| endpoint.head).map(|head| head.number).max();
        assert_eq!(pool.frontier().map(|head| head.number), top);
        assert!(pool.ids().any(|id| id == pool.sticky()));
        assert_eq!(pool.status(now).endpoints.len(), pool.order.len());
    }

    /// Nothing but the tracker, for a while.
    fn comes_back(&mut self) {
        for pick in std::mem::take(&mut self.open) {
            self.pool.abandon(pick, self.now);
        }
        self.holds();
        self.now += Duration::from_secs(400);
        for id in self.pool.ids().collect::<Vec<_>>() {
            self.pool.set_identity(id, Identity::Verified, self.now);
            let due = self.pool.get(id).probe_at().max(self.pool.get(id).rested_at());
            assert!(due.is_none_or(|due| due <= self.now), "every wait ends");
            let pick = self.pool.begin_tracking(id, self.now).expect("it is looked at again");
            self.pool.end(pick, "m", &Verdict::Answer, self.now);
        }
        for id in self.pool.ids().collect::<Vec<_>>() {
            self.pool.on_head(id, Header { timestamp: 0, ..header(200_000) }, self.now);
        }
        for id in self.pool.ids().collect::<Vec<_>>() {
            let standing = self.pool.status(self.now).endpoints;
            let it = standing.iter().find(|it| it.name == self.pool.get(id).name).expect("it is there");
            assert!(matches!(it.standing, Standing::Serving | Standing::Idle), "{it:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_pool_stays_sound_and_every_endpoint_comes_back(
        members in vec((role(), budget()), 1..6),
        events in vec(event(), 0..120),
    ) {
        let mut world = World::new(members);
        for event in events {
            world.happens(event);
            world.holds();
        }
        world.comes_back();
    }
}
