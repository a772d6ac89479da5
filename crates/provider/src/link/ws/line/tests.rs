//! Connections over a pipe, in simulated time.

use tokio::io::DuplexStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::link::Left;

/// How many bytes the pipe takes before the other side reads them.
const PIPE: usize = 4096;

/// A connection that is served, and the other side of it.
struct Setup {
    orders: mpsc::UnboundedSender<Order>,
    end: tokio::task::JoinHandle<End>,
    server: WebSocketStream<DuplexStream>,
}

async fn setup() -> Setup {
    let (near, far) = tokio::io::duplex(PIPE);
    let stream = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
    let server = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
    let (orders, mut taken) = mpsc::unbounded_channel();
    let end = tokio::spawn(async move {
        let mut line = Line { waiting: BTreeMap::new(), forgotten: 0, strays: Counter::noop() };
        let end = line.run(stream, &mut taken).await;
        line.fail(end);
        end
    });
    Setup { orders, end, server }
}

impl Setup {
    fn ask(&self, first: u64, text: impl Into<Bytes>) -> (oneshot::Receiver<Heard>, Left) {
        let (reply, heard) = oneshot::channel();
        let left = Left::default();
        let ask = Ask { first, count: 1, text: text.into(), left: left.clone(), reply };
        assert!(self.orders.send(Order::Ask(ask)).is_ok(), "it is served");
        (heard, left)
    }

    async fn say(&mut self, text: &str) {
        self.server.send(Message::text(text)).await.expect("it is open");
    }
}

/// What became of a request, in a word.
async fn came(heard: oneshot::Receiver<Heard>) -> String {
    match tokio::time::timeout(Duration::from_secs(3600), heard).await {
        Ok(Ok(Heard::Reply(reply, naming))) => {
            format!("{naming:?} {}", String::from_utf8_lossy(&reply.body))
        }
        Ok(Ok(Heard::Broken(broken))) => format!("{} sent={}", broken.kind, broken.sent),
        Ok(Ok(Heard::Unwritten)) => "unwritten".to_owned(),
        Ok(Err(_)) => "nothing".to_owned(),
        Err(_) => "open".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_given_up_and_what_waits_may_be_sent() {
    // The other side is there, and never reads.
    let setup = setup().await;
    let begun = Instant::now();
    let (heard, left) = setup.ask(1, "one");
    assert_eq!(came(heard).await, "timeout sent=true");
    assert!(left.maybe());
    let took = begun.elapsed();
    assert!(took >= QUIET + DEAD && took < QUIET + DEAD + Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_may_take_its_time() {
    let Setup { orders, end, mut server } = setup().await;
    let (reply, heard) = oneshot::channel();
    let ask = Ask { first: 1, count: 1, text: "one".into(), left: Left::default(), reply };
    assert!(orders.send(Order::Ask(ask)).is_ok());
    let serving = tokio::spawn(async move {
        let late = tokio::time::sleep(Duration::from_secs(600));
        tokio::pin!(late);
        let mut pings = 0;
        loop {
            tokio::select! {
                // To read is to answer pings.
                message = server.next() => match message {
                    Some(Ok(Message::Ping(_))) => pings += 1,
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return pings,
                },
                () = &mut late, if !late.is_elapsed() => {
                    server.send(Message::text(r#"{"id":1,"result":"0x1"}"#)).await.expect("it is open");
                }
            }
        }
    });
    assert_eq!(came(heard).await, r#"Named {"id":1,"result":"0x1"}"#);
    assert!(!end.is_finished());
    drop(orders);
    end.await.expect("it ends with its owner");
    let pings = serving.await.expect("no panic");
    assert!((30..=40).contains(&pings), "one for each quiet time: {pings}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_reading_in_a_message_is_given_up() {
    let setup = setup().await;
    let begun = Instant::now();
    let (first, _) = setup.ask(1, vec![b' '; 4 * PIPE]);
    let (second, left) = setup.ask(2, "two");
    assert_eq!(came(first).await, "timeout sent=true");
    // It may have been behind the first in the same buffer.
    assert_eq!(came(second).await, "timeout sent=true");
    assert!(left.maybe());
    assert!(begun.elapsed() < DEAD + Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_says_not_to_what_it_is_goes_to_nobody_while_something_else_is_to_come() {
    let mut setup = setup().await;
    let nameless = r#"{"error":{"code":-32000,"message":"no"}}"#;
    let (alone, _) = setup.ask(1, "one");
    // Written, before the error can be about it.
    assert!(matches!(setup.server.next().await, Some(Ok(Message::Text(_)))));
    setup.say(nameless).await;
    assert_eq!(came(alone).await, format!("Guessed {nameless}"));

    let (given_up, _) = setup.ask(2, "two");
    assert!(matches!(setup.server.next().await, Some(Ok(Message::Text(_)))));
    assert!(setup.orders.send(Order::Forget(2)).is_ok());
    drop(given_up);
    let (other, _) = setup.ask(3, "three");
    assert!(matches!(setup.server.next().await, Some(Ok(Message::Text(_)))));
    // Neither is to the second: one was answered, the other never asked.
    setup.say(r#"{"id":1,"result":"again"}"#).await;
    setup.say(r#"{"id":99,"result":"foreign"}"#).await;
    setup.say(nameless).await;
    setup.say(r#"{"id":3,"result":"0x3"}"#).await;
    assert_eq!(came(other).await, r#"Named {"id":3,"result":"0x3"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_nothing_for_long_fills_no_memory() {
    let Setup { orders, end, mut server } = setup().await;
    tokio::spawn(async move { while let Some(Ok(_)) = server.next().await {} });
    for first in 1..=2 * MOST_FORGOTTEN as u64 {
        let (reply, heard) = oneshot::channel();
        let ask = Ask { first, count: 1, text: "x".into(), left: Left::default(), reply };
        if orders.send(Order::Ask(ask)).is_err() {
            break;
        }
        // The other side has read it by then.
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(heard);
        let _ = orders.send(Order::Forget(first));
    }
    let ended = tokio::time::timeout(Duration::from_secs(1), end).await.expect("it ends");
    assert_eq!(ended.expect("no panic"), FaultKind::Timeout);
}
