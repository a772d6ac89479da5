//! What endpoints hold of the past (E6).

use std::time::Instant;

use super::{EndpointId, Pool};
use crate::{endpoint::Holds, failure::DataKind};

impl Pool {
    /// Whether an endpoint holds data of a kind at a height.
    pub fn holds(&self, id: EndpointId, kind: DataKind, height: u64, now: Instant) -> Holds {
        let endpoint = self.get(id);
        endpoint.head.map_or(Holds::Unknown, |head| endpoint.history.holds(kind, height, head.number, now))
    }

    /// Notes that an endpoint answered with data at a height.
    pub fn history_shown(&mut self, id: EndpointId, kind: DataKind, height: u64) {
        let endpoint = self.at(id);
        if let Some(head) = endpoint.head {
            endpoint.history.shown(kind, height, head.number);
        }
    }

    /// Notes that an endpoint does not hold data at a height, and the lowest that it says it holds.
    pub fn history_refused(
        &mut self,
        id: EndpointId,
        (kind, height): (DataKind, u64),
        oldest: Option<u64>,
        now: Instant,
    ) {
        let endpoint = self.at(id);
        if let Some(head) = endpoint.head {
            endpoint.history.refused(kind, height, oldest, head.number, now);
        }
    }

    /// The lowest height that any endpoint is known to hold.
    pub fn oldest(&self, kind: DataKind) -> Option<u64> {
        self.ids()
            .filter_map(|id| {
                let endpoint = self.get(id);
                endpoint.history.oldest(kind, endpoint.head?.number)
            })
            .min()
    }
}
