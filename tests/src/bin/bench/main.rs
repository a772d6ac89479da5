//! Measures reads against raw alloy, as ratios in one run: `cargo xtask bench`.
//!
//! A server in a process of its own answers from memory. Raw alloy and each candidate take turns, slice by slice,
//! so that whatever else the machine does meets both.

mod measure;
mod server;

use std::{fs, path::PathBuf, time::Duration};

use alloy::{
    network::Ethereum,
    providers::{DynProvider, Provider, ProviderBuilder, RootProvider},
    rpc::client::RpcClient,
    transports::{http::Http, layers::FallbackLayer},
};
use anyhow::{Context, bail};
use backstay::{Client, Config, EndpointConfig};
use serde_json::json;
use tower::ServiceBuilder;
use url::Url;

use crate::{
    measure::{Compared, compare},
    server::{Fault, Server},
};

#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

/// What is compared with raw alloy.
struct Case {
    name: String,
    provider: DynProvider,
    tasks: usize,
    /// The servers that its calls go to, to count them.
    servers: Vec<usize>,
    /// Keeps the client alive.
    _client: Option<Client>,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = arguments.as_slice()
        && first == server::SERVE
    {
        return server::serve(rest.first().context("no fault is named")?);
    }
    let (mut json, mut only) = (None, String::new());
    for pair in arguments.chunks(2) {
        match pair {
            [flag, path] if flag == "--json" => json = Some(PathBuf::from(path)),
            [flag, part] if flag == "--case" => only.clone_from(part),
            other => bail!("unknown arguments {other:?}; there are --json FILE and --case PART-OF-NAME"),
        }
    }
    measure::pin_to(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(json, &only))
}

async fn run(json: Option<PathBuf>, only: &str) -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for _ in 0..64 {
        servers.push(Server::start(Fault::None)?);
    }
    let dead = Server::start(Fault::Dead)?;
    let hung = Server::start(Fault::Hung)?;
    let url = |index: usize| servers[index].url();
    let raw = RootProvider::<Ethereum>::new(RpcClient::new(Http::new(url(0)), true)).erased();

    let mut cases = Vec::new();
    for tasks in [1, 64] {
        let three: Vec<Url> = (0..3).map(url).collect();
        let transports: Vec<_> = three.iter().cloned().map(Http::new).collect();
        let fallback = ServiceBuilder::new().layer(FallbackLayer::default()).service(transports);
        cases.push(Case {
            name: format!("fallback-layer, {tasks} at once"),
            provider: ProviderBuilder::default().connect_client(RpcClient::new(fallback, true)).erased(),
            tasks,
            servers: vec![0, 1, 2],
            _client: None,
        });
        for (name, endpoints) in [
            ("1 endpoint", vec![url(0)]),
            ("3 endpoints", three.clone()),
            ("64 endpoints", (0..64).map(url).collect()),
            ("3 endpoints, primary dead", vec![dead.url(), url(0), url(1)]),
            ("3 endpoints, primary hung", vec![hung.url(), url(0), url(1)]),
        ] {
            let client = connect(&endpoints).await.with_context(|| name.to_owned())?;
            cases.push(Case {
                name: format!("backstay, {name}, {tasks} at once"),
                provider: client.provider::<Ethereum>().erased(),
                tasks,
                servers: (0..endpoints.len()).collect(),
                _client: Some(client),
            });
        }
    }

    let mut results = Vec::new();
    println!("{:42} {:>7} {:>15} {:>7} {:>7} {:>9}", "case", "rate", "95 %", "cpu", "allocs", "upstream");
    for case in cases.iter().filter(|case| case.name.contains(only)) {
        let counted = || case.servers.iter().map(|index| servers[*index].reads()).sum::<u64>();
        let compared = compare(&raw, &case.provider, case.tasks, counted, ALLOCATOR).await?;
        let Compared { ratio, low, high, cpu, allocs, upstream } = compared;
        println!(
            "{:42} {ratio:7.3} {:>15} {cpu:7.3} {allocs:7.3} {upstream:9.3}",
            case.name,
            format!("{low:.3}..{high:.3}")
        );
        results.push(json!({
            "name": case.name, "ratio_to_raw": ratio, "ci_low": low, "ci_high": high, "cpu_ratio": cpu,
            "upstream_calls_per_call": upstream, "allocs_ratio": allocs,
        }));
    }
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&json!({ "cases": results }))? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A client in its default configuration, its tracker running.
async fn connect(endpoints: &[Url]) -> backstay::Result<Client> {
    let endpoint = |(index, url): (usize, &Url)| EndpointConfig::new(format!("e{index}"), url.as_str());
    let endpoints = endpoints.iter().enumerate().map(endpoint).collect();
    let client = Client::builder(Config::new(server::CHAIN_ID, endpoints)).connect().await?;
    // A hung primary is known to be hung "since before".
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(client)
}
