//! TLS, over HTTP and WebSocket.

use backstay_core::failure::FaultKind;
use bytes::Bytes;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer},
    },
    server::TlsStream,
};

use super::*;
use crate::link::http::connector;

const REPLY: &str = r#"{"id":1,"result":"it is secret"}"#;

/// A server with a certificate of its own.
async fn server<F>(serve: impl Fn(TlsStream<TcpStream>) -> F + Send + 'static) -> (String, Connector)
where
    F: Future<Output = ()> + Send,
{
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("it is made");
    let certificate: CertificateDer<'static> = own.cert.der().clone();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("it is a key");
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("they belong together");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust it goes away here.
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream).await;
            }
        }
    });
    (address, trusting(certificate))
}

/// As it is made for endpoints, but that it trusts this certificate alone.
fn trusting(certificate: CertificateDer<'static>) -> Connector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it is a certificate");
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_http1()
        .wrap_connector(http)
}

fn target(connector: Connector, url: String) -> Target {
    Target::new(connector, &EndpointConfig::new("a", url)).expect("a valid url")
}

async fn post(target: &Target, left: &Left) -> Result<Bytes, Broken> {
    target.post(Bytes::from_static(b"{}"), 1024, left).await.map(|reply| reply.body)
}

#[tokio::test]
async fn https_is_spoken_where_the_certificate_is_trusted_and_else_told_as_tls() {
    let (address, trusting) = server(async |mut stream| {
        let _ = stream.read(&mut [0; 4096]).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", REPLY.len());
        let _ = stream.write_all(format!("{head}{REPLY}").as_bytes()).await;
        let _ = stream.flush().await;
    })
    .await;
    let url = format!("https://{address}/");
    let reply = post(&target(trusting, url.clone()), &Left::default()).await;
    assert_eq!(reply.expect("it answers"), REPLY);

    let left = Left::default();
    let broken = post(&target(connector(), url), &left).await.expect_err("it is not trusted");
    assert_eq!((broken.kind, broken.sent, left.maybe()), (FaultKind::Tls, false, false));
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    let target = target(connector(), format!("https://{address}/"));
    let broken = post(&target, &Left::default()).await.expect_err("it is not TLS");
    assert_eq!((broken.kind, broken.sent), (FaultKind::Tls, false));
}

#[cfg(feature = "ws")]
#[tokio::test]
async fn wss_is_spoken_where_the_certificate_is_trusted_and_else_told_as_tls() {
    use alloy::rpc::json_rpc::Id;
    use futures::{SinkExt, StreamExt};
    use metrics::Counter;

    let (address, trusting) = server(async |stream| {
        let mut socket = tokio_tungstenite::accept_async(stream).await.expect("it is an upgrade");
        let _ = socket.next().await;
        let _ = socket.send(REPLY.into()).await;
    })
    .await;
    let url = format!("wss://{address}/");
    let call = Call::new(Id::Number(0), "eth_chainId", "[]");
    let socket = Socket::new(target(trusting, url.clone()), Counter::noop());
    let answer = socket.ask(&[&call], 1024, &Left::default()).await.expect("it answers");
    assert_eq!(answer.reply.body, REPLY);

    let left = Left::default();
    let socket = Socket::new(target(connector(), url), Counter::noop());
    let Err(broken) = socket.ask(&[&call], 1024, &left).await else { panic!("it is not trusted") };
    assert_eq!((broken.kind, broken.sent, left.maybe()), (FaultKind::Tls, false, false));
}
