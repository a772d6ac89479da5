//! Which endpoints there are, also while calls are under way (E10).

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError},
    time::Duration,
};

use backstay_core::{
    EndpointName, Error, ErrorKind, Result, Retry,
    endpoint::{EndpointId, Identity},
    failure::Verdict,
};

use crate::{
    config::EndpointConfig,
    endpoints::track::Branch,
    endpoints::{Endpoints, Shared, now, time_of_day},
    link::Link,
    reads::route::backoff,
};

impl Endpoints {
    /// Adds an endpoint, as the least preferred. It returns at once: the endpoint is identified in the background, and
    /// serves from then on; [`Endpoints::status`] tells. One that does not answer now is identified when it does.
    ///
    /// # Errors
    ///
    /// A configuration error when its name is empty or taken, or its URL or a header is not valid.
    pub fn add(&self, endpoint: &EndpointConfig) -> Result<()> {
        check_name(&endpoint.name)?;
        let shared = &self.shared;
        let link = Link::new(&shared.connector, shared.chain_id, endpoint)?;
        {
            let mut pool = shared.pool();
            if pool.find(&endpoint.name).is_some() {
                return Err(taken(&endpoint.name));
            }
            let id = pool.add(endpoint.member());
            // With the pool's lock held, so that each id has its link.
            shared.put_link(id, link);
        }
        tracing::info!(endpoint = %endpoint.name, "an endpoint was added");
        shared.roster.notify_one();
        Ok(())
    }

    /// Removes an endpoint. Calls that are under way there end as they end; a session that is pinned there moves on.
    ///
    /// # Errors
    ///
    /// A configuration error when there is no endpoint of that name, or it is the last that is read from, or the last
    /// of those that was seen to serve this chain.
    pub fn remove(&self, name: &EndpointName) -> Result<()> {
        let shared = &self.shared;
        {
            let mut pool = shared.pool();
            let id = pool.find(name).ok_or_else(|| unknown(name))?;
            if !pool.ids().any(|other| other != id && pool.get(other).role().is_read_from()) {
                return Err(Error::config(format!(
                    "endpoint `{name}` is the last that is read from, so it stays; add another one first"
                )));
            }
            let identified = |id: EndpointId| {
                let endpoint = pool.get(id);
                endpoint.role().is_read_from() && *endpoint.identity() == Identity::Verified
            };
            if identified(id) && !pool.ids().any(|other| other != id && identified(other)) {
                return Err(Error::config(format!(
                    "endpoint `{name}` is the last that was seen to serve this chain, so it stays; add another one first, \
                     and wait until `status()` shows it in use"
                )));
            }
            pool.remove(id, now());
            if let Some(link) = shared.link(id) {
                link.meter.in_use.set(0.0);
            }
            shared.drop_link(id);
        }
        tracing::info!(endpoint = %name, "an endpoint was removed");
        shared.roster.notify_one();
        Ok(())
    }

    /// Puts an endpoint in the place of the one of the same name: another URL, other headers, another key. It is
    /// identified first, within `connect_timeout`; until then the old one serves, and it goes on where the new one does
    /// not prove to be of this chain. What was learned of the old one is forgotten.
    ///
    /// # Errors
    ///
    /// A configuration error when there is no endpoint of that name, its URL or a header is not valid, or it is the last
    /// that is read from and would be no more; [`ErrorKind::Unavailable`] when the new one does not answer, or nothing
    /// decides on its branch; [`ErrorKind::WrongChain`] when it serves another chain. Nothing has changed then.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the old one in place.
    pub async fn replace(&self, endpoint: &EndpointConfig) -> Result<()> {
        let shared = &self.shared;
        let link = Link::new(&shared.connector, shared.chain_id, endpoint)?;
        let (old, candidate) = {
            let mut pool = shared.pool();
            let old = pool.find(&endpoint.name).ok_or_else(|| unknown(&endpoint.name))?;
            let candidate = Candidate { shared, id: pool.add_candidate(endpoint.member()) };
            shared.put_link(candidate.id, link);
            (old, candidate)
        };
        let timeout = shared.config.connect_timeout;
        match tokio::time::timeout(timeout, shared.prove(candidate.id)).await {
            Ok(proved) => proved?,
            Err(_) => return Err(not_replaced(&endpoint.name, &format!("no answer within {timeout:?}"))),
        }
        let replaced = {
            let mut pool = shared.pool();
            let read_from = |id: EndpointId| pool.get(id).role().is_read_from();
            if !pool.ids().any(|id| id != old && read_from(id)) && !read_from(candidate.id) {
                return Err(Error::config(format!(
                    "endpoint `{}` is the last that is read from, so it cannot become one that is not",
                    endpoint.name
                )));
            }
            let there = !pool.get(old).is_removed();
            pool.replace(old, candidate.id, now());
            there
        };
        if !replaced {
            // Somebody else has removed or replaced it meanwhile, and that stands.
            return Err(not_replaced(&endpoint.name, "it was removed or replaced meanwhile"));
        }
        shared.drop_link(old);
        shared.probe_history(candidate.id);
        std::mem::forget(candidate);
        tracing::info!(endpoint = %endpoint.name, "an endpoint was replaced");
        shared.roster.notify_one();
        Ok(())
    }
}

/// An endpoint that is to take another's place. Dropped before it has, it is removed.
struct Candidate<'a> {
    shared: &'a Shared,
    id: EndpointId,
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        self.shared.pool().remove(self.id, now());
        self.shared.drop_link(self.id);
    }
}

impl Shared {
    /// The way to an endpoint; `None` when it was removed.
    pub(crate) fn link(&self, id: EndpointId) -> Option<Arc<Link>> {
        self.links.read().unwrap_or_else(PoisonError::into_inner).get(id.0).cloned().flatten()
    }

    fn put_link(&self, id: EndpointId, link: Link) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        let places = links.len().max(id.0 + 1);
        links.resize_with(places, || None);
        links[id.0] = Some(Arc::new(link));
    }

    /// Forgets the way to an endpoint, and its keys with it.
    fn drop_link(&self, id: EndpointId) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.get_mut(id.0) {
            *link = None;
        }
    }

    /// Identifies an endpoint that is not one of the pool yet.
    async fn prove(&self, id: EndpointId) -> Result<()> {
        let name = self.name(id);
        for wait in backoff() {
            let facts = match self.facts(id).await {
                Ok(facts) => facts,
                // Its breaker is open, or it asked us to wait: in a moment.
                Err(Verdict::RateLimited { .. }) => {
                    tokio::time::sleep(wait.max(Duration::from_millis(250))).await;
                    continue;
                }
                Err(verdict) => return Err(not_replaced(&name, verdict.label())),
            };
            let genesis = *self.genesis.get().unwrap_or(&None);
            if let Some(wrong) = self.mismatch(&facts, genesis) {
                return Err(wrong_chain(&name, &wrong));
            }
            if facts.lacks(genesis) {
                match self.history_of(id).await {
                    Ok(Identity::Verified) => {}
                    Ok(Identity::Wrong(why)) => return Err(wrong_chain(&name, &why)),
                    Ok(Identity::Unverified | Identity::Unknown) => {
                        return Err(not_replaced(
                            &name,
                            "it no longer holds block 0, and nothing else tells its history",
                        ));
                    }
                    Err(verdict) => return Err(not_replaced(&name, verdict.label())),
                }
            }
            match self.branch_of(id, facts.head).await {
                Ok(Branch::Same) => {
                    let mut pool = self.pool();
                    pool.tell_time(now(), time_of_day());
                    pool.on_head(id, facts.head, now());
                    pool.set_identity(id, Identity::Verified, now());
                    return Ok(());
                }
                Ok(Branch::Other(why)) => return Err(wrong_chain(&name, &why)),
                // A reorganisation that is under way looks like this for a moment.
                Ok(Branch::Undecided) | Err(_) => tokio::time::sleep(wait).await,
            }
        }
        Err(not_replaced(&name, "nothing decides on its branch"))
    }
}

/// Checks the names of endpoints, and that one is there to be read from.
pub(crate) fn check(endpoints: &[EndpointConfig]) -> Result<()> {
    if endpoints.is_empty() {
        return Err(Error::config("no endpoint is configured; add at least one with a name and a url"));
    }
    let mut names = HashSet::new();
    for endpoint in endpoints {
        check_name(&endpoint.name)?;
        if !names.insert(&endpoint.name) {
            return Err(taken(&endpoint.name));
        }
    }
    if !endpoints.iter().any(|endpoint| endpoint.role.is_read_from()) {
        return Err(Error::config(
            "no endpoint can be read from: all are `send_only` or `private`; add one with the role `read`",
        ));
    }
    Ok(())
}

fn check_name(name: &EndpointName) -> Result<()> {
    if name.as_str().trim().is_empty() {
        return Err(Error::config("an endpoint has an empty name; logs and errors call it by its name"));
    }
    Ok(())
}

fn taken(name: &EndpointName) -> Error {
    Error::config(format!("two endpoints are named `{name}`; give each its own name"))
}

fn unknown(name: &EndpointName) -> Error {
    Error::config(format!("no endpoint is named `{name}`"))
}

fn not_replaced(name: &EndpointName, why: &str) -> Error {
    let message = format!("endpoint `{name}` was not replaced: {why}; the old one goes on");
    Error::new(ErrorKind::Unavailable, message).with_retry(Retry::Later)
}

fn wrong_chain(name: &EndpointName, why: &str) -> Error {
    let message = format!("endpoint `{name}` was not replaced: {why}; the old one goes on");
    Error::new(ErrorKind::WrongChain, message)
}
