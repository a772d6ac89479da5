//! The pool as people and programs see it.

use std::time::{Duration, Instant};

use super::{EndpointId, Need, Pool, choice::Barred};
use crate::{
    endpoint::{
        BudgetStatus, EndpointStatus, HeadStatus, Header, Identity, Phase, PoolStatus, Standing, state::Doubt,
    },
    failure::DataKind,
    units::EndpointName,
};

impl Pool {
    /// A snapshot of the pool and its endpoints.
    pub fn status(&self, now: Instant) -> PoolStatus {
        PoolStatus {
            frontier: self.frontier().map(|head| self.head_status(head, now)),
            block_time: self.block_time(),
            sticky: self.ids().find(|id| *id == self.sticky()).map(|id| self.get(id).name.clone()),
            degraded: self.degraded(now),
            endpoints: self.ids().map(|id| self.endpoint_status(id, now)).collect(),
        }
    }

    /// What is wrong with the pool as a whole (E2, E3, E5), in words.
    fn degraded(&self, now: Instant) -> Vec<String> {
        let mut reasons = Vec::new();
        let names = |ids: &mut dyn Iterator<Item = EndpointId>| {
            let names: Vec<EndpointName> = ids.map(|id| self.get(id).name.clone()).collect();
            names.iter().map(EndpointName::as_str).collect::<Vec<_>>().join(", ")
        };
        for (need, what) in [(Need::Current, "asked"), (Need::Send, "sent to")] {
            let mut able = self.ids().filter(|id| self.may_serve(*id, need)).peekable();
            if able.peek().is_none() {
                reasons.push(format!("no endpoint can be {what}"));
            } else if able.all(|id| self.get(id).rests(now).is_some()) {
                reasons.push(format!("every endpoint that can be {what} rests, and is {what} all the same"));
            }
        }
        let doubted = |doubt: Doubt| {
            self.ids().filter(move |id| {
                let endpoint = self.get(*id);
                endpoint.doubted && endpoint.doubt.is_some_and(|(known, _)| known == doubt)
            })
        };
        if doubted(Doubt::Future).next().is_some() {
            let who = names(&mut doubted(Doubt::Future));
            reasons.push(format!("the head of {who} is ahead of the clock; the older head is served"));
        }
        if doubted(Doubt::TooFar).next().is_some() {
            let who = names(&mut doubted(Doubt::TooFar));
            reasons.push(format!(
                "the head of {who} is further ahead than the chain can have come; the older head is served"
            ));
        }
        if let Some(age) = self.standstill(now) {
            let secs = Duration::from_secs(age.as_secs());
            reasons.push(format!(
                "every head is old: the highest is of {secs:?} ago, on a chain of steady blocks"
            ));
        }
        reasons
    }

    fn endpoint_status(&self, id: EndpointId, now: Instant) -> EndpointStatus {
        let endpoint = self.get(id);
        let need = if endpoint.role.is_read_from() { Need::Current } else { Need::Send };
        let heads = self.frontier().zip(endpoint.head);
        let budget = endpoint.meter.budget();
        let kinds = [DataKind::State, DataKind::Blocks, DataKind::Logs, DataKind::Transactions];
        let oldest = |kind| Some((kind, endpoint.history.oldest(kind, endpoint.head?.number)?));
        let mut unsupported: Vec<String> =
            endpoint.unsupported.keys().filter(|method| endpoint.lacks(method, now)).cloned().collect();
        unsupported.sort_unstable();
        EndpointStatus {
            name: endpoint.name.clone(),
            host: endpoint.host.clone(),
            role: endpoint.role,
            standing: self.standing(id, need, now),
            excluded: self.excluded(id, need, now),
            head: endpoint.head.map(|head| self.head_status(head, now)),
            lag: heads.map(|(top, head)| top.number.saturating_sub(head.number)),
            lag_time: heads
                .map(|(top, head)| Duration::from_secs(top.timestamp.saturating_sub(head.timestamp))),
            oldest: kinds.into_iter().filter_map(oldest).collect(),
            breaker: endpoint.phase(),
            next_probe: endpoint.probe_at().map(|at| whole_millis(at.saturating_duration_since(now))),
            budget: BudgetStatus {
                in_flight: endpoint.meter.in_flight(),
                max_concurrent: budget.max_concurrent.map(Into::into),
                max_per_second: budget.max_per_second.map(Into::into),
                left: budget.max_per_second.map(|_| endpoint.meter.left(now).floor() as i64),
            },
            unsupported,
            calls: endpoint.calls,
            faults: endpoint.faults,
            verdicts: endpoint.verdicts.iter().map(|(label, count)| ((*label).to_owned(), *count)).collect(),
        }
    }

    fn standing(&self, id: EndpointId, need: Need, now: Instant) -> Standing {
        let endpoint = self.get(id);
        match self.barred(id, need) {
            Some(Barred::Removed | Barred::Unidentified) => Standing::Unidentified,
            Some(Barred::Unverified) => Standing::Unverified,
            Some(Barred::Wrong(_)) => Standing::Wrong,
            Some(Barred::SendOnly | Barred::Relay | Barred::Public) => match &endpoint.identity {
                Identity::Verified => Standing::Idle,
                Identity::Unknown => Standing::Unidentified,
                Identity::Unverified => Standing::Unverified,
                Identity::Wrong(_) => Standing::Wrong,
            },
            Some(Barred::Stale | Barred::Behind(_)) => Standing::Stale,
            Some(Barred::Doubted(_)) => Standing::Doubted,
            None if endpoint.phase() != Phase::Closed => Standing::Open,
            None if endpoint.cools(now) => Standing::Cooling,
            None if endpoint.rests(now).is_some() => Standing::Silent,
            None => Standing::Serving,
        }
    }

    fn head_status(&self, head: Header, now: Instant) -> HeadStatus {
        let Header { number, hash, timestamp, .. } = head;
        HeadStatus { number, hash, timestamp, age: self.age(head, now).map(whole_millis) }
    }
}

const fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(duration.as_millis() as u64)
}
