//! One endpoint as it is spoken to: where its requests go, and what is measured of it.

pub(crate) mod http;
pub(crate) mod secrets;
pub(crate) mod wire;
#[cfg(feature = "ws")]
pub(crate) mod ws;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use backstay_core::Result;
#[cfg(feature = "ws")]
use backstay_core::failure::Verdict;

use crate::{
    config::{EndpointConfig, Kind},
    endpoints::Shared,
    endpoints::notice::Seldom,
    link::http::{Broken, Connector, Target},
    link::secrets::Secrets,
    link::wire::{Call, Reply},
    meter::EndpointMeter,
};
#[cfg(feature = "ws")]
use crate::{
    link::ws::{Naming, Socket},
    sends::gate::{Sends, sends},
};

/// The way to one endpoint.
pub(crate) struct Link {
    way: Way,
    secrets: Secrets,
    pub(crate) meter: EndpointMeter,
    /// Whether it was in use when it was last looked at.
    pub(crate) in_use: AtomicBool,
    /// When its rests were last told of.
    pub(crate) rests_told: Seldom,
    /// When its coming and going was last told of.
    pub(crate) use_told: Seldom,
}

enum Way {
    Http(Box<Target>),
    #[cfg(feature = "ws")]
    WebSocket(Socket),
}

/// Whether bytes of a request may have left, where it was given up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left(Arc<AtomicBool>);

impl Left {
    pub(crate) fn maybe(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// From here on they may. Called before the first one is written.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// It has turned out that none did.
    fn unset(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Link {
    pub(crate) fn new(connector: &Connector, chain_id: u64, config: &EndpointConfig) -> Result<Self> {
        let target = Target::new(connector.clone(), config)?;
        let meter = EndpointMeter::new(chain_id, config.name.as_str());
        let way = match target.kind() {
            Kind::Http => Way::Http(Box::new(target)),
            #[cfg(feature = "ws")]
            Kind::WebSocket => Way::WebSocket(Socket::new(target, meter.strays.clone())),
            #[cfg(not(feature = "ws"))]
            Kind::WebSocket => {
                return Err(backstay_core::Error::config("this build is without the feature `ws`"));
            }
        };
        Ok(Self {
            way,
            secrets: Secrets::new(config, &config.parse()?),
            meter,
            // It is told of when it falls out of use, not when it comes into it at connect.
            in_use: AtomicBool::new(true),
            rests_told: Seldom::default(),
            use_told: Seldom::default(),
        })
    }

    /// Sends calls and reads the replies, in their order, and whether the calls may have reached the endpoint.
    ///
    /// # Cancel safety
    ///
    /// Dropping it gives the calls up; `left` says whether they may have been received.
    pub(crate) async fn ask(
        &self,
        shared: &Shared,
        calls: &[&Call],
        left: &Left,
    ) -> Result<(Vec<Reply>, bool), Broken> {
        let limit = shared.config.max_reply;
        let (mut replies, sent) = match &self.way {
            Way::Http(target) => {
                let reply = target.post(wire::body(calls), limit, left).await?;
                (wire::read(calls, &reply, &shared.classifier), reply.sent)
            }
            #[cfg(feature = "ws")]
            Way::WebSocket(socket) => {
                let answer = socket.ask(calls, limit, left).await?;
                let calls: Vec<&Call> = answer.calls.iter().collect();
                let mut replies = wire::read(&calls, &answer.reply, &shared.classifier);
                if answer.naming == Naming::Guessed {
                    calls.iter().zip(&mut replies).for_each(|(call, reply)| doubt(call, reply));
                }
                (replies, answer.reply.sent)
            }
        };
        replies.iter_mut().for_each(|reply| self.secrets.hush(reply));
        Ok((replies, sent))
    }
}

/// An error that does not say to what it is proves nothing of a send: the bytes may be on their way to the chain while
/// the endpoint speaks of something else (T3).
#[cfg(feature = "ws")]
fn doubt(call: &Call, reply: &mut Reply) {
    if sends(&call.method) != Sends::No && !matches!(reply.verdict, Verdict::Fault(_)) {
        reply.verdict = Verdict::Unclassified;
    }
}

#[cfg(test)]
mod tls;
