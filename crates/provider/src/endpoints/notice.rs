//! What is told of endpoints as they change: log events, and the metrics that go with them.
//!
//! Events are told after the pool's lock is free. What can come and go many times a minute is told at `info`
//! once a minute and else at `debug`, so that an endpoint that flaps does not fill the log.

use std::{
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use alloy::rpc::json_rpc::ResponsePayload;
use backstay_core::{
    EndpointName,
    endpoint::{EndpointId, Identity, Need, Phase},
    failure::{News, Verdict},
};

use crate::{
    endpoints::{Shared, now},
    link::wire::Reply,
};

/// How long the same kind of event stays quiet.
const QUIET: Duration = Duration::from_secs(60);

/// When something was last told at `info`.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Whether it is time again.
    fn due(&self, now: Instant) -> Volume {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| now.saturating_duration_since(last) < QUIET) {
            return Volume::Low;
        }
        *last = Some(now);
        Volume::Full
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Volume {
    Full,
    Low,
}

/// An event at `info`, or at `debug` where it was told a moment ago.
macro_rules! seldom {
    ($volume:expr, $($what:tt)*) => {
        match $volume {
            Volume::Full => tracing::info!($($what)*),
            Volume::Low => tracing::debug!($($what)*),
        }
    };
}

impl Shared {
    /// Tells how an endpoint's breaker changed.
    pub(crate) fn notice_breaker(&self, id: EndpointId, name: &EndpointName, before: Phase, after: Phase) {
        if before == after {
            return;
        }
        let Some(link) = self.link(id) else { return };
        link.meter.breaker_changes.count(after.label());
        match after {
            // The cooldown doubles from one opening to the next.
            Phase::Open => tracing::warn!(endpoint = %name, "its breaker opened"),
            Phase::HalfOpen => tracing::debug!(endpoint = %name, "its breaker admits a probe"),
            Phase::Closed => tracing::info!(endpoint = %name, "its breaker closed"),
        }
    }

    /// Tells that an endpoint asked us to wait.
    pub(crate) fn notice_rest(&self, id: EndpointId, name: &EndpointName, verdict: &Verdict) {
        if let Verdict::RateLimited { after } = verdict
            && let Some(link) = self.link(id)
        {
            let volume = link.rests_told.due(now());
            seldom!(volume, endpoint = %name, ?after, "it asks us to wait");
        }
    }

    /// Tells when another endpoint has become the one that serves.
    pub(crate) fn notice_sticky(&self, sticky: EndpointId) {
        if self.sticky.load(Ordering::Relaxed) == sticky.0 {
            return;
        }
        let from = EndpointId(self.sticky.swap(sticky.0, Ordering::Relaxed));
        if from == sticky {
            return;
        }
        self.meter.sticky_moves.increment(1);
        let volume = self.moves_told.due(now());
        seldom!(volume, from = %self.name(from), to = %self.name(sticky), "another endpoint serves from here on");
    }

    /// Notes what an identity check found, and tells of it where that is news.
    pub(crate) fn identified(&self, id: EndpointId, identity: Identity) {
        let (name, was) = {
            let mut pool = self.pool();
            let was = pool.get(id).identity().clone();
            pool.set_identity(id, identity.clone(), now());
            (pool.get(id).name.clone(), was)
        };
        if identity == Identity::Verified {
            self.probe_history(id);
        }
        if was == identity {
            return;
        }
        let to = match identity {
            Identity::Unknown => "unknown",
            Identity::Verified => "verified",
            Identity::Unverified => "unverified",
            Identity::Wrong(_) => "wrong",
        };
        let Some(link) = self.link(id) else { return };
        link.meter.identity_changes.count(to);
        match (&was, &identity) {
            (_, Identity::Wrong(why)) => {
                tracing::warn!(endpoint = %name, ?was, %why, "identity changed: it is not in use");
            }
            (Identity::Unknown, Identity::Verified) => tracing::debug!(endpoint = %name, "identified"),
            (_, Identity::Unverified) => {
                tracing::warn!(endpoint = %name, ?was, "it holds no block that tells its history: it is asked last");
            }
            (_, Identity::Unknown | Identity::Verified) => {
                tracing::info!(endpoint = %name, ?was, now = ?identity, "identity changed");
            }
        }
    }

    /// Counts an error that no row knows, and tells of each wording once: a row of the operator's can name it.
    pub(crate) fn notice_unclassified(&self, id: EndpointId, name: &EndpointName, reply: &Reply) {
        if let Some(link) = self.link(id) {
            link.meter.unclassified.increment(1);
        }
        let Some(ResponsePayload::Failure(error)) = &reply.payload else { return };
        let news = self.wordings.lock().unwrap_or_else(PoisonError::into_inner).note(&error.message);
        match news {
            News::New(wording) => {
                let code = error.code;
                tracing::warn!(endpoint = %name, code, wording, "an error that no row of the classifier knows");
            }
            News::Known | News::Full => {}
        }
    }

    /// Counts a call that goes on to another endpoint, by what the one before said.
    pub(crate) fn notice_failover(
        &self,
        method: &str,
        from: &EndpointName,
        to: &EndpointName,
        verdict: &str,
    ) {
        self.failovers.fetch_add(1, Ordering::Relaxed);
        // A null that another endpoint was asked about.
        let reason = if verdict == Verdict::Answer.label() { "miss" } else { verdict };
        self.meter.failovers.count(reason);
        tracing::debug!(method, %from, %to, reason, "went on to another endpoint");
    }

    /// Measures where an endpoint stands, after a look at it.
    pub(crate) fn notice_standing(&self, id: EndpointId) {
        let went_back = self.pool().take_reorg(id);
        if went_back {
            self.mark().went_back();
        }
        let (excluded, lag) = {
            let pool = self.pool();
            let heads = pool.frontier().zip(pool.get(id).head());
            let lag = heads.map(|(top, head)| top.number.saturating_sub(head.number));
            // Some are there to be sent to alone.
            let need = if pool.get(id).role().is_read_from() { Need::Current } else { Need::Send };
            (pool.excluded(id, need, now()), lag)
        };
        let Some(link) = self.link(id) else { return };
        if let Some(lag) = lag {
            link.meter.head_lag.set(lag as f64);
        }
        link.meter.in_use.set(if excluded.is_none() { 1.0 } else { 0.0 });
        if link.in_use.swap(excluded.is_none(), Ordering::Relaxed) != excluded.is_none() {
            let volume = link.use_told.due(now());
            let name = self.name(id);
            match excluded {
                None => seldom!(volume, endpoint = %name, "it is in use"),
                Some(why) => seldom!(volume, endpoint = %name, %why, "it is passed over"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_and_again_is_told_once_a_minute() {
        let seldom = Seldom::default();
        let start = Instant::now();
        let told = (0..600).filter(|second| seldom.due(start + Duration::from_secs(*second)) == Volume::Full);
        assert_eq!(told.count(), 10);
    }
}
