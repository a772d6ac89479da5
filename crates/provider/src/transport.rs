//! Failover as an alloy transport: `sol!` bindings, fillers and multicalls work over it unchanged (R11).

use std::{sync::Arc, task};

use alloy::{
    eips::Decodable2718,
    primitives::{Bytes, TxHash, keccak256},
    rpc::json_rpc::{RequestPacket, Response, ResponsePacket, ResponsePayload, RpcError},
    transports::{TransportError, TransportErrorKind, TransportFut},
};
use backstay_core::{Delivery, Error, ErrorKind, Retry, endpoint::Need, tx::SendAnswer};
use futures::future::{join_all, ready};
use serde_json::value::to_raw_value;
use tower::Service;
use tracing::{Instrument, Span, field::Empty};

use crate::{
    endpoints::{Endpoints, Shared},
    link::wire::Call,
    reads::hedge::Hedged,
    reads::route::{End, Way},
    sends::gate::{Sends, sends},
    session::Session,
};

/// An alloy transport over all endpoints.
#[derive(Clone, Debug)]
pub struct Failover {
    endpoints: Endpoints,
    hedged: Hedged,
}

impl Endpoints {
    /// The failover transport. It reserves nothing until it is called.
    pub fn transport(&self) -> Failover {
        Failover { endpoints: self.clone(), hedged: Hedged::AsConfigured }
    }

    /// The same, with reads hedged: where an endpoint is slower than it mostly is, a second one is asked while the
    /// first call is open, and the first answer counts (R10). By `read.hedge`, or its defaults where that is not set.
    ///
    /// An endpoint's usual time is measured from the first hedged read on. Sends and filters are never hedged, and
    /// what a hedge meets is not held against its endpoint.
    pub fn hedged_transport(&self) -> Failover {
        drop(self.shared.hedging());
        Failover { endpoints: self.clone(), hedged: Hedged::Always }
    }
}

impl Service<RequestPacket> for Failover {
    type Response = ResponsePacket;
    type Error = TransportError;
    type Future = TransportFut<'static>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Self::Error>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: RequestPacket) -> Self::Future {
        let (endpoints, hedged) = (self.endpoints.clone(), self.hedged);
        let span = operation(&request, endpoints.chain_id());
        let respond =
            respond(request, async move |calls: &[Call]| answer(&endpoints.shared, calls, hedged).await);
        spanned(span, respond)
    }
}

/// The transport of a session: reads are fenced at its block, and nothing is sent.
#[derive(Clone, Debug)]
pub(crate) struct SessionTransport(Session);

impl SessionTransport {
    pub(crate) const fn new(session: Session) -> Self {
        Self(session)
    }
}

impl Service<RequestPacket> for SessionTransport {
    type Response = ResponsePacket;
    type Error = TransportError;
    type Future = TransportFut<'static>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Self::Error>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: RequestPacket) -> Self::Future {
        let session = self.0.clone();
        let span = operation(&request, session.endpoints().chain_id());
        spanned(
            span,
            respond(request, async move |calls: &[Call]| {
                let one =
                    async |call| session.answer(call).await.map(|(_, payload)| payload).map_err(to_alloy);
                join_all(calls.iter().map(one)).await
            }),
        )
    }
}

/// The span of one packet. Nothing is made where no subscriber wants it.
fn operation(request: &RequestPacket, chain: u64) -> Span {
    let method = || match request {
        RequestPacket::Single(request) => request.method(),
        RequestPacket::Batch(_) => "batch",
    };
    tracing::debug_span!("operation", method = method(), calls = request.len(), chain, outcome = Empty)
}

/// Runs a packet in its span, and notes there how it ended.
fn spanned<F>(span: Span, answered: F) -> TransportFut<'static>
where
    F: Future<Output = Result<ResponsePacket, TransportError>> + Send + 'static,
{
    if span.is_disabled() {
        return Box::pin(answered);
    }
    Box::pin(async move {
        let answered = answered.instrument(span.clone()).await;
        span.record("outcome", outcome(&answered));
        answered
    })
}

/// How a packet ended, in a word.
fn outcome(answered: &Result<ResponsePacket, TransportError>) -> &'static str {
    match answered {
        Ok(packet) if packet.is_success() => "ok",
        Ok(_) => "error of the node",
        Err(error) => error_of(error).map_or("error", |error| error.kind().label()),
    }
}

/// Answers a packet, its elements in order.
async fn respond<F>(request: RequestPacket, answer: F) -> Result<ResponsePacket, TransportError>
where
    F: AsyncFn(&[Call]) -> Vec<Result<ResponsePayload, TransportError>>,
{
    match request {
        RequestPacket::Single(request) => {
            let call = Call::from_alloy(request);
            let payload = answer(std::slice::from_ref(&call)).await.remove(0)?;
            Ok(ResponsePacket::Single(Response { id: call.id, payload }))
        }
        RequestPacket::Batch(requests) => {
            let calls: Vec<Call> = requests.into_iter().map(Call::from_alloy).collect();
            let payloads = answer(&calls).await;
            // Alloy has no place for one element's transport error beside another's answer.
            let response =
                |(call, payload): (Call, Result<_, _>)| Ok(Response { id: call.id, payload: payload? });
            calls.into_iter().zip(payloads).map(response).collect::<Result<_, _>>().map(ResponsePacket::Batch)
        }
    }
}

/// Answers calls in their order: sends one by one through the gate, all reads as one batch.
async fn answer(
    shared: &Arc<Shared>,
    calls: &[Call],
    hedged: Hedged,
) -> Vec<Result<ResponsePayload, TransportError>> {
    // Mostly it is one read.
    if let [call] = calls
        && sends(&call.method) == Sends::No
    {
        let answers = shared.route(calls, Way::current(hedged)).await;
        return answers.into_iter().map(|answer| answer.map_err(to_alloy)).collect();
    }
    let mut answers: Vec<Option<Result<ResponsePayload, TransportError>>> =
        calls.iter().map(|_| None).collect();
    let mut reads = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        match sends(&call.method) {
            Sends::No => reads.push(index),
            Sends::Raw => answers[index] = Some(send(shared, call).await),
            Sends::Once => {
                answers[index] = Some(match shared.pass_gate(call) {
                    Ok(()) => {
                        let one = std::slice::from_ref(call);
                        shared.route(one, Way::send()).await.remove(0).map_err(to_alloy)
                    }
                    Err(error) => Err(to_alloy(error)),
                });
            }
        }
    }
    let batch: Vec<Call> = reads.iter().map(|index| calls[*index].clone()).collect();
    for (index, answer) in reads.into_iter().zip(shared.route(&batch, Way::current(hedged)).await) {
        answers[index] = Some(answer.map_err(to_alloy));
    }
    let unanswered = || Err(to_alloy(Error::new(ErrorKind::Closed, "the request was not answered")));
    answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
}

/// Sends the raw bytes of an account that this client does not manage.
async fn send(shared: &Arc<Shared>, call: &Call) -> Result<ResponsePayload, TransportError> {
    shared.pass_gate(call).map_err(to_alloy)?;
    let raw = call.params().and_then(|params| serde_json::from_str::<(Bytes,)>(params).ok());
    let Some((raw,)) = raw else {
        let message = "eth_sendRawTransaction: its parameters are not one string of bytes; nothing was sent";
        return Err(to_alloy(Error::new(ErrorKind::Invalid, message)));
    };
    let hash = hash_of(&raw);
    let submission = shared
        .submit(&raw, hash, (None, shared.config.broadcast.spread()), &|_| Box::pin(ready(true)), None)
        .await;
    let delivery = match submission.answer {
        SendAnswer::Accepted => {
            return to_raw_value(&hash).map(ResponsePayload::Success).map_err(TransportError::ser_err);
        }
        SendAnswer::Refused(_) => match submission.refusal {
            Some(error) => return Ok(ResponsePayload::Failure(error)),
            None => Delivery::Refused,
        },
        SendAnswer::Unknown => Delivery::Unknown,
        SendAnswer::NotSent => {
            let error = shared.exhausted(&call.method, Need::Send, submission.attempts, End::NobodyLeft);
            return Err(to_alloy(error));
        }
    };
    let message = format!(
        "eth_sendRawTransaction: no endpoint confirmed {hash}; treat it as sent until the chain says otherwise"
    );
    let error = Error::new(ErrorKind::Unavailable, message)
        .with_retry(Retry::Later)
        .with_delivery(delivery)
        .with_attempts(submission.attempts);
    Err(to_alloy(error))
}

/// The hash that the chain will know these bytes by. Blob transactions travel with a sidecar that is not
/// part of it.
fn hash_of(raw: &Bytes) -> TxHash {
    match alloy::consensus::TxEnvelope::decode_2718(&mut raw.as_ref()) {
        Ok(transaction) => *transaction.tx_hash(),
        Err(_) => keccak256(raw),
    }
}

/// Our error, as it crosses alloy.
pub(crate) fn to_alloy(error: Error) -> TransportError {
    TransportErrorKind::custom(error)
}

/// Gets Backstay's error back out of an alloy transport error; `None` for an error that a node answered
/// with, which stays alloy's own JSON-RPC error.
///
/// ```
/// # use alloy::transports::TransportError;
/// # fn example(error: TransportError) {
/// if let Some(error) = backstay_provider::error_of(&error) {
///     println!("{:?}, may be sent: {:?}", error.kind(), error.delivery());
/// }
/// # }
/// ```
pub fn error_of(error: &TransportError) -> Option<&Error> {
    match error {
        RpcError::Transport(TransportErrorKind::Custom(inner)) => inner.downcast_ref(),
        _ => None,
    }
}
