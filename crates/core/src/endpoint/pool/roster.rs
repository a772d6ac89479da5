//! Which endpoints there are: they come and go while calls are under way.

use std::time::Instant;

use super::{EndpointId, Pool};
use crate::{
    endpoint::{Breaker, EndpointState, HeaderWindow, History, Member, Role, breaker_seed, state::Presence},
    units::EndpointName,
};

impl Pool {
    /// Takes an endpoint in, as the least preferred. It serves once it is identified.
    pub fn add(&mut self, member: Member) -> EndpointId {
        let id = self.enter(member, Presence::Member);
        if self.order.is_empty() {
            self.sticky = id;
        }
        self.order.push(id);
        self.count_private();
        id
    }

    /// Makes a place for an endpoint that is to take another's, once it is identified there.
    pub fn add_candidate(&mut self, member: Member) -> EndpointId {
        self.enter(member, Presence::Candidate)
    }

    /// Puts a candidate in the place of an endpoint, in the order of preference too. Nothing changes where that one
    /// is not there any more.
    pub fn replace(&mut self, old: EndpointId, candidate: EndpointId, now: Instant) {
        let Some(place) = self.order.iter().position(|id| *id == old) else { return };
        self.order[place] = candidate;
        self.at(candidate).presence = Presence::Member;
        if self.sticky == old {
            self.sticky = candidate;
        }
        self.retire(old, now);
    }

    /// Removes an endpoint. Calls that are under way there end as they end.
    pub fn remove(&mut self, id: EndpointId, now: Instant) {
        self.order.retain(|other| *other != id);
        self.retire(id, now);
        if self.sticky == id
            && let Some(first) = self.order.first()
        {
            self.sticky = *first;
        }
    }

    /// The endpoint of a name.
    pub fn find(&self, name: &EndpointName) -> Option<EndpointId> {
        self.ids().find(|id| self.get(*id).name == *name)
    }

    fn enter(&mut self, member: Member, presence: Presence) -> EndpointId {
        let (client, chain_id) = self.seed;
        let breaker = Breaker::new(self.config.breaker, breaker_seed(client, chain_id, &member.name));
        self.endpoints.push(EndpointState::new(member, presence, breaker));
        EndpointId(self.endpoints.len() - 1)
    }

    fn retire(&mut self, id: EndpointId, now: Instant) {
        let endpoint = self.at(id);
        endpoint.presence = Presence::Removed;
        // What remains is small: a key may be changed every hour, for years.
        endpoint.window = HeaderWindow::default();
        endpoint.history = History::default();
        endpoint.unsupported = Default::default();
        endpoint.verdicts = Vec::new();
        self.count_private();
        self.judge(now);
    }

    fn count_private(&mut self) {
        self.private = self.ids().filter(|id| self.get(*id).role == Role::Private).count();
    }
}
