//! What a call that has ended says of its endpoint (E8).

use std::time::{Duration, Instant};

use super::{EndpointId, Pick, Pool};
use crate::{
    endpoint::Identity,
    failure::{FaultKind, Verdict},
};

/// How long an endpoint is left alone that asks for it without saying for how long.
const COOL: Duration = Duration::from_secs(1);
/// The longest that it is left alone, whatever it says.
const LONGEST_COOL: Duration = Duration::from_secs(300);

impl Pool {
    /// Tells how a call ended.
    pub fn end(&mut self, pick: Pick, method: &str, verdict: &Verdict, now: Instant) {
        let endpoint = self.at(pick.id);
        endpoint.meter.end();
        endpoint.count(verdict.label());
        let ailed = endpoint.rests(now).is_some() || endpoint.well_since.is_none();
        if *verdict != Verdict::Fault(FaultKind::Timeout) {
            endpoint.silent_since = None;
            endpoint.spoke_at = Some(now);
            endpoint.mute = false;
        }
        match verdict {
            Verdict::Answer | Verdict::Reverted(_) => endpoint.breaker.on_success(now),
            Verdict::Fault(_) => {
                endpoint.faults += 1;
                endpoint.well_since = None;
                if pick.probe {
                    endpoint.breaker.on_probe_failed(now);
                } else {
                    endpoint.breaker.on_fault(now);
                }
            }
            Verdict::RateLimited { after } => {
                endpoint.cool_until = Some(now + after.unwrap_or(COOL).min(LONGEST_COOL));
                if pick.probe {
                    endpoint.breaker.on_success(now);
                }
            }
            Verdict::WrongIdentity => {
                if pick.probe {
                    endpoint.breaker.on_abandoned(now);
                }
                self.set_identity(pick.id, Identity::Wrong("it answered for another chain".into()), now);
                return;
            }
            // The endpoint spoke, and speaking is all that a probe asks for.
            Verdict::Unsupported
            | Verdict::NotYet
            | Verdict::Missing { .. }
            | Verdict::TxRefused(_)
            | Verdict::RangeTooLarge { .. }
            | Verdict::Invalid
            | Verdict::Unclassified => {
                if pick.probe {
                    endpoint.breaker.on_success(now);
                }
                if *verdict == Verdict::Unsupported {
                    endpoint.unsupported.insert(method.to_owned(), now);
                }
            }
        }
        if ailed {
            self.news(pick.id, now);
        }
    }

    /// Tells that a call which began at `begun` timed out. An endpoint that has said nothing since then is passed
    /// over until it does: the next call would hang as well. One that answered others meanwhile was only slow.
    pub fn unheard(&mut self, id: EndpointId, begun: Instant) {
        let endpoint = self.at(id);
        endpoint.mute = endpoint.spoke_at.is_none_or(|spoke| spoke <= begun);
    }

    /// Tells that a call of the tracker, admitted at `begun`, was given up before it ended: that it got no answer says
    /// nothing.
    pub fn abandon_tracking(&mut self, pick: Pick, begun: Instant, now: Instant) {
        let silent_since = &mut self.at(pick.id).silent_since;
        *silent_since = silent_since.filter(|since| *since != begun);
        self.abandon(pick, now);
    }

    /// Tells that a call was given up before it ended.
    pub fn abandon(&mut self, pick: Pick, now: Instant) {
        let endpoint = self.at(pick.id);
        endpoint.meter.end();
        if pick.probe {
            endpoint.breaker.on_abandoned(now);
        }
    }
}
