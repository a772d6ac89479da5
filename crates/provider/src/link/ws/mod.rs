//! Endpoints over WebSocket: one connection each, shared by all calls.
//!
//! A connection is made by the first call that needs one, and again by the next one after it has ended; the head
//! tracker's looks are such calls, so that an endpoint comes back by itself, as often as its breaker allows. A
//! task serves the connection; it is owned by the [`Socket`] and ends with it.
//!
//! Several clients of alloy's number their requests alike, so requests go out under numbers of our own.

mod line;

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use alloy::rpc::json_rpc::Id;
use backstay_core::failure::FaultKind;
use metrics::Counter;
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

use crate::{
    link::Left,
    link::http::{Broken, HttpReply, Target},
    link::wire::{self, Call},
};

/// The way to an endpoint over WebSocket.
pub(crate) struct Socket {
    dial: Arc<line::Dial>,
    numbers: AtomicU64,
    connection: Mutex<Option<Connection>>,
}

/// A connection, or one that is being made. It ends when this is dropped.
struct Connection {
    orders: mpsc::UnboundedSender<Order>,
    task: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the task of a connection is asked to do.
enum Order {
    Ask(Ask),
    /// Nobody waits for the reply to the request of this number any more.
    Forget(u64),
}

/// One message, and who waits for the reply.
struct Ask {
    /// The number of its first call; those of a batch follow.
    first: u64,
    count: u64,
    text: bytes::Bytes,
    /// Set before its first byte is written.
    left: Left,
    reply: oneshot::Sender<Heard>,
}

/// What became of a message.
#[derive(Clone, Debug)]
enum Heard {
    /// A reply, or what the endpoint said in place of letting us in.
    Reply(HttpReply, Naming),
    Broken(Broken),
    /// The connection ended before the message was written to it.
    Unwritten,
}

/// Whether a reply says to which request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    Named,
    /// It came while this was the only request. Something else may have made the endpoint say it.
    Guessed,
}

/// Requests under our own numbers, and what came back for them.
pub(crate) struct Answer {
    pub(crate) calls: Vec<Call>,
    pub(crate) reply: HttpReply,
    pub(crate) naming: Naming,
}

impl Socket {
    pub(crate) fn new(target: Target, strays: Counter) -> Self {
        Self {
            dial: Arc::new(line::Dial { target, strays }),
            numbers: AtomicU64::new(1),
            connection: Mutex::new(None),
        }
    }

    /// Sends calls as one message and waits for the reply, of at most `limit` bytes.
    ///
    /// # Cancel safety
    ///
    /// Dropping it forgets the numbers of the calls; the connection goes on. A message that was not begun by then
    /// never leaves; `left` says whether it was.
    pub(crate) async fn ask(&self, calls: &[&Call], limit: usize, left: &Left) -> Result<Answer, Broken> {
        let count = calls.len() as u64;
        let first = self.numbers.fetch_add(count, Ordering::Relaxed);
        let calls: Vec<Call> =
            (first..).zip(calls).map(|(number, call)| call.renumbered(Id::Number(number))).collect();
        let text = wire::body(&calls.iter().collect::<Vec<_>>());
        // A connection that stood idle may have ended before the message was written: then a new one is tried.
        for _ in 0..2 {
            let (reply, heard) = oneshot::channel();
            let ask = Ask { first, count, text: text.clone(), left: left.clone(), reply };
            let orders = self.order(ask, limit);
            let mut forget = Forget { orders, first: Some(first) };
            let heard = heard.await;
            forget.first = None;
            match heard {
                Ok(Heard::Reply(reply, naming)) => return Ok(Answer { calls, reply, naming }),
                Ok(Heard::Broken(broken)) => return Err(broken),
                Ok(Heard::Unwritten) => {}
                // The task is gone, and with it the connection.
                Err(_) if left.maybe() => break,
                Err(_) => {}
            }
        }
        Err(Broken { kind: FaultKind::Reset, sent: left.maybe() })
    }

    /// Hands a message to the connection, or to a new one.
    fn order(&self, ask: Ask, limit: usize) -> mpsc::UnboundedSender<Order> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut order = Order::Ask(ask);
        if let Some(open) = &*connection {
            match open.orders.send(order) {
                Ok(()) => return open.orders.clone(),
                Err(mpsc::error::SendError(back)) => order = back,
            }
        }
        let (orders, taken) = mpsc::unbounded_channel();
        // It cannot be closed: its other end is in the hand.
        let _ = orders.send(order);
        let task = tokio::spawn(line::serve(Arc::clone(&self.dial), limit, taken)).abort_handle();
        *connection = Some(Connection { orders: orders.clone(), task });
        orders
    }
}

/// Tells the connection when the one who waits is gone.
struct Forget {
    orders: mpsc::UnboundedSender<Order>,
    first: Option<u64>,
}

impl Drop for Forget {
    fn drop(&mut self) {
        if let Some(first) = self.first {
            // A connection that has ended has forgotten everything.
            let _ = self.orders.send(Order::Forget(first));
        }
    }
}
