//! Which endpoint a call goes to.

use std::time::{Duration, Instant};

use super::{EndpointId, Need, Pick, Pool, Resting, SendPublic};
use crate::{
    endpoint::{
        Admission, Holds, Identity, Role,
        state::{Doubt, Presence},
    },
    failure::DataKind,
};

/// Why an endpoint may not serve a need at all.
pub(super) enum Barred<'a> {
    Removed,
    Unidentified,
    /// It may be read from when nobody else is left.
    Unverified,
    Wrong(&'a str),
    SendOnly,
    Relay,
    Public,
    Stale,
    Behind(u64),
    Doubted(Option<Doubt>),
}

impl Pool {
    /// Chooses the endpoint for the next try of a call, or `None` when none is left.
    ///
    /// `prefer` comes first where it is usable, then the sticky endpoint, then the others in order. When
    /// no endpoint is well, one that rests, or did not serve the method, is asked all the same (E5), unless
    /// `resting` says that somebody has spoken already: a pool never empties itself. After those come endpoints that
    /// are not verified yet. Wrong identity and, for [`Need::Current`] and [`Need::Send`], a head that is stale or not
    /// believed are the exceptions, and so is a budget that is used up: [`Pool::wait`] says how long, and an endpoint
    /// that is well but for its budget is waited for before one that rests is asked.
    ///
    /// A call that finds its first choice well looks at no other endpoint.
    pub fn begin(
        &mut self,
        need: Need,
        method: &str,
        prefer: Option<EndpointId>,
        tried: &[EndpointId],
        resting: Resting,
        now: Instant,
    ) -> Option<Pick> {
        self.settle_sticky(now);
        let chosen = self.choose(need, method, prefer, tried, resting, now)?;
        Some(self.admit(chosen, now))
    }

    fn choose(
        &self,
        need: Need,
        method: &str,
        prefer: Option<EndpointId>,
        tried: &[EndpointId],
        resting: Resting,
        now: Instant,
    ) -> Option<EndpointId> {
        let order = self.candidates(need, prefer).filter(|id| !tried.contains(id));
        let may = |id: &EndpointId| self.barred(*id, need).is_none();
        let can = |id: &EndpointId| self.get(*id).meter.wait(now).is_none();
        let fit = |id: &EndpointId| {
            let endpoint = self.get(*id);
            may(id) && endpoint.rests(now).is_none() && !endpoint.lacks(method, now)
        };
        let well = |id: &EndpointId| fit(id) && can(id);
        let unverified = |id: &EndpointId| match need {
            Need::Current | Need::AtHeight(_) | Need::Reached(_) => {
                matches!(self.barred(*id, need), Some(Barred::Unverified))
            }
            Need::Send => false,
        };
        // One that only spent its budget is waited for: one that hangs would take longer.
        let busy = |id: &EndpointId| fit(id) && !can(id);
        let last_resort = || match resting {
            Resting::Ask if order.clone().any(|id| busy(&id)) => None,
            Resting::Ask => order.clone().find(|id| may(id) && can(id)).or_else(|| {
                let able = self.wait(need, tried, resting, now).is_none();
                order.clone().find(|id| able && unverified(id) && can(id))
            }),
            Resting::Leave => None,
        };
        order.clone().find(well).or_else(last_resort)
    }

    /// How long until [`Pool::begin`] may find an endpoint that it passes over now because its budget is used up;
    /// `None` when it passes over none for that.
    pub fn wait(&self, need: Need, tried: &[EndpointId], resting: Resting, now: Instant) -> Option<Duration> {
        let asked = |id: &EndpointId| match resting {
            Resting::Ask => true,
            Resting::Leave => self.get(*id).rests(now).is_none(),
        };
        self.ids()
            .filter(|id| !tried.contains(id) && self.barred(*id, need).is_none() && asked(id))
            .filter_map(|id| self.get(id).meter.wait(now))
            .min()
    }

    /// The endpoint that a session is pinned to first: the sticky one, or whichever may serve.
    pub fn favourite(&mut self, now: Instant) -> Option<EndpointId> {
        self.settle_sticky(now);
        self.candidates(Need::Current, None).find(|id| self.barred(*id, Need::Current).is_none())
    }

    /// Admits a call of the head tracker: whatever the identity or lag, but not against the breaker, and not
    /// while the endpoint asked us to wait, or has as many requests as it may have at once.
    pub fn begin_tracking(&mut self, id: EndpointId, now: Instant) -> Option<Pick> {
        let endpoint = self.at(id);
        if endpoint.presence == Presence::Removed || endpoint.cools(now) {
            return None;
        }
        if endpoint.breaker.peek(now) == Admission::No || !endpoint.meter.admits_tracker(now) {
            return None;
        }
        endpoint.silent_since.get_or_insert(now);
        Some(self.admit(id, now))
    }

    /// Admits a call to this very endpoint, unless it rests or its budget is used up.
    pub fn begin_only(&mut self, id: EndpointId, now: Instant) -> Option<Pick> {
        let endpoint = self.get(id);
        if endpoint.rests(now).is_some() || endpoint.meter.wait(now).is_some() {
            return None;
        }
        Some(self.admit(id, now))
    }

    /// How long until this endpoint's budget has room; `None` when it has, or the endpoint rests.
    pub fn room_in(&self, id: EndpointId, now: Instant) -> Option<Duration> {
        let endpoint = self.get(id);
        endpoint.meter.wait(now).filter(|_| endpoint.rests(now).is_none())
    }

    /// Admits a call to this very endpoint, whatever its state: a second question about its own answer.
    pub fn begin_at(&mut self, id: EndpointId, now: Instant) -> Pick {
        let endpoint = self.at(id);
        endpoint.calls += 1;
        endpoint.meter.begin(now);
        Pick { id, probe: false }
    }

    /// Counts requests beyond the first that one call is: those of a batch.
    pub fn charge(&mut self, id: EndpointId, requests: u32, now: Instant) {
        self.at(id).meter.charge(requests, now);
    }

    /// The endpoint that is about to have what is at the frontier: a declared origin that is well, beside at
    /// least one other endpoint, and not known to lack that height.
    pub fn origin(&self, method: &str, kind: DataKind, height: u64, now: Instant) -> Option<EndpointId> {
        let origin = self.ids().find(|id| self.get(*id).role == Role::Origin)?;
        let well = self.barred(origin, Need::Current).is_none() && self.get(origin).rests(now).is_none();
        let lacks =
            self.get(origin).lacks(method, now) || self.holds(origin, kind, height, now) == Holds::Missing;
        (self.order.len() > 1 && well && !lacks).then_some(origin)
    }

    /// How many endpoints may be sent to, breaker and rest aside.
    pub fn senders(&self) -> usize {
        self.ids().filter(|id| self.may_serve(*id, Need::Send)).count()
    }

    /// Whether an endpoint may serve a need, breaker, rest and budget aside.
    pub fn may_serve(&self, id: EndpointId, need: Need) -> bool {
        self.barred(id, need).is_none()
    }

    /// Why an endpoint gets no such calls now; `None` when it may.
    pub fn excluded(&self, id: EndpointId, need: Need, now: Instant) -> Option<String> {
        let endpoint = self.get(id);
        match self.barred(id, need) {
            None => endpoint.rests(now).map(str::to_owned),
            Some(Barred::Removed) => Some("it was removed".to_owned()),
            Some(Barred::Unidentified) => Some("not identified yet".to_owned()),
            Some(Barred::Unverified) => Some(
                "not verified yet: it no longer holds block 0; set `provider.checkpoint` to a block that it holds"
                    .to_owned(),
            ),
            Some(Barred::Wrong(why)) => Some(why.to_owned()),
            Some(Barred::SendOnly) => Some("it is only sent to".to_owned()),
            Some(Barred::Relay) => Some("it is a private relay, never read from".to_owned()),
            Some(Barred::Public) => {
                Some("transactions go to private endpoints only (`provider.pool.send_public`)".to_owned())
            }
            Some(Barred::Behind(height)) => Some(format!("it has not shown block {height}")),
            Some(Barred::Stale) => {
                let heads = self.frontier().zip(endpoint.head);
                let lag = heads.map_or(0, |(top, head)| top.number.saturating_sub(head.number));
                Some(format!("stale: {lag} blocks behind"))
            }
            Some(Barred::Doubted(Some(Doubt::Future))) => {
                Some("its head is not believed: its time is ahead of the clock".to_owned())
            }
            Some(Barred::Doubted(Some(Doubt::TooFar) | None)) => Some(
                "its head is not believed: it is further ahead of the others than the chain can have come"
                    .to_owned(),
            ),
        }
    }

    /// The endpoints that get no such calls now while another is well.
    pub fn resting(&self, need: Need, now: Instant) -> Vec<EndpointId> {
        let excluded =
            |id: &EndpointId| self.barred(*id, need).is_some() || self.get(*id).rests(now).is_some();
        self.ids().filter(excluded).collect()
    }

    pub(super) fn barred(&self, id: EndpointId, need: Need) -> Option<Barred<'_>> {
        let endpoint = self.get(id);
        if endpoint.presence != Presence::Member {
            return Some(Barred::Removed);
        }
        match (&endpoint.identity, need) {
            (Identity::Unknown, _) => return Some(Barred::Unidentified),
            (Identity::Wrong(why), _) => return Some(Barred::Wrong(why)),
            (Identity::Verified | Identity::Unverified, _) => {}
        }
        match (need, endpoint.role) {
            (Need::AtHeight(_) | Need::Reached(_) | Need::Current, Role::SendOnly) => {
                return Some(Barred::SendOnly);
            }
            (Need::AtHeight(_) | Need::Reached(_) | Need::Current, Role::Private) => {
                return Some(Barred::Relay);
            }
            (Need::AtHeight(_) | Need::Reached(_) | Need::Current, Role::Origin | Role::Read) => {}
            (Need::Send, Role::Private) => {}
            (Need::Send, Role::Origin | Role::Read | Role::SendOnly) => {
                if self.private > 0 && self.config.send_public == SendPublic::Never {
                    return Some(Barred::Public);
                }
            }
        }
        if endpoint.identity == Identity::Unverified {
            return Some(Barred::Unverified);
        }
        match need {
            Need::Reached(_) if endpoint.doubted => {
                Some(Barred::Doubted(endpoint.doubt.map(|(doubt, _)| doubt)))
            }
            Need::Reached(height) => {
                let reached = endpoint.reached().is_some_and(|reached| reached >= height);
                (!reached).then_some(Barred::Behind(height))
            }
            Need::AtHeight(height) if endpoint.head.is_some_and(|head| head.number >= height) => None,
            Need::AtHeight(_) | Need::Current | Need::Send if endpoint.doubted => {
                Some(Barred::Doubted(endpoint.doubt.map(|(doubt, _)| doubt)))
            }
            Need::AtHeight(_) | Need::Current | Need::Send if endpoint.stale => Some(Barred::Stale),
            Need::AtHeight(_) | Need::Current | Need::Send => None,
        }
    }

    /// The endpoints in the order in which they are looked at, some of them twice. Private ones come first for sends,
    /// so that consent to others is consent to a fallback.
    pub(super) fn candidates(
        &self,
        need: Need,
        prefer: Option<EndpointId>,
    ) -> impl Iterator<Item = EndpointId> + Clone + '_ {
        let private = match need {
            Need::Send => self.order.as_slice(),
            Need::Current | Need::AtHeight(_) | Need::Reached(_) => &[],
        };
        let private = private.iter().copied().filter(|id| self.get(*id).role == Role::Private);
        private.chain(prefer).chain([self.sticky]).chain(self.order.iter().copied())
    }

    fn admit(&mut self, id: EndpointId, now: Instant) -> Pick {
        let endpoint = self.at(id);
        endpoint.calls += 1;
        endpoint.meter.begin(now);
        Pick { id, probe: endpoint.breaker.admit(now) == Admission::Probe }
    }

    fn settle_sticky(&mut self, now: Instant) {
        let usable =
            |id: EndpointId| self.barred(id, Need::Current).is_none() && self.get(id).rests(now).is_none();
        let stays = usable(self.sticky);
        if stays && self.review_at.is_none_or(|at| now < at) {
            return;
        }
        let held = |id: EndpointId| {
            let since = self.get(id).well_since;
            since.is_some_and(|since| now.saturating_duration_since(since) >= self.config.min_hold)
        };
        let preferred = || self.ids().take_while(|id| *id != self.sticky);
        let better = preferred().find(|id| usable(*id) && held(*id));
        let fallback = || self.ids().find(|id| usable(*id));
        let sticky = better.or_else(|| if stays { None } else { fallback() }).unwrap_or(self.sticky);
        // Those that are well, and only have to stay so; whatever else changes is news.
        let due = |id: EndpointId| {
            let endpoint = self.get(id);
            let at = (endpoint.well_since? + self.config.min_hold).max(endpoint.cool_until.unwrap_or(now));
            (at > now).then_some(at)
        };
        let review_at = self.ids().take_while(|id| *id != sticky).filter_map(due).min();
        self.sticky = sticky;
        self.review_at = review_at;
    }
}
