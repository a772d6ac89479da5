//! What stands in front of a node: plans, quotas, credentials, gateways, and methods that are not served.

use super::*;
use Class::{Fault, RateLimited, Unsupported};
use FaultKind::{Auth, Billing, Server, Timeout};

pub(super) static ROWS: &[Entry] = &[
    // Plans that are used up.
    row(Fault(Billing), &["monthly capacity limit"])
        .says(
            "alchemy",
            429,
            "Monthly capacity limit exceeded. Visit the dashboard to upgrade your scaling policy.",
        )
        .under(429)
        .seen_in(ERPC),
    row(Fault(Billing), &["reached the free tier"])
        .says("drpc", -32000, "You have reached the free tier limit")
        .seen_in(ERPC),
    row(Fault(Billing), &["limit for your current plan"])
        .says("hosted nodes", -32000, "You have hit the limit for your current plan")
        .seen_in(ERPC),
    row(Fault(Billing), &["/billing"])
        .says("hosted nodes", -32000, "Quota used up, see https://dashboard.example/billing")
        .seen_in(ERPC),
    row(Unsupported, &["method", "not included in your current plan"])
        .to("debug_traceCall")
        .says("chainstack", -32002, "Method debug_traceCall is not included in your current plan")
        .seen_in(ERPC),
    row(Fault(Billing), &["is not included in your current plan"])
        .says("chainstack", -32002, "This network is not included in your current plan")
        .seen_in(ERPC),
    // Rate limits.
    row(RateLimited, &["exceeded project rate limit"])
        .says("infura", -32005, "project ID request rate exceeded: exceeded project rate limit")
        .data(
            r#"{"rate":{"allowed_rps":1,"backoff_seconds":30,"current_rps":1.1},"see":"https://infura.io"}"#,
        )
        .seen_in(ALLOY),
    row(RateLimited, &["daily request count exceeded"])
        .says("infura", -32005, "daily request count exceeded, request rate limited")
        .seen_in(ALLOY),
    row(RateLimited, &["compute units per second"])
        .says("alchemy", 429, "Your app has exceeded its compute units per second capacity.")
        .seen_in(VIEM),
    row(RateLimited, &["credits limited"])
        .says("quicknode", -32012, "credits limited to 6000/sec")
        .seen_in(ALLOY),
    row(RateLimited, &["request limit reached"])
        .says("quicknode", -32007, "20/second request limit reached - reduce calls per second")
        .seen_in(ALLOY),
    row(RateLimited, &["over rate limit"])
        .says("proxyd", -32016, "over rate limit")
        .under(429)
        .seen_in(PROXYD),
    row(RateLimited, &["backend is over capacity"])
        .says("proxyd", -32012, "backend is over capacity")
        .under(429)
        .seen_in(PROXYD),
    row(RateLimited, &["maximum number of concurrent requests"])
        .says("hosted nodes", -32000, "maximum number of concurrent requests reached")
        .seen_in(ALLOY),
    row(RateLimited, &["too many concurrent requests"])
        .says("hosted nodes", 1008, "too many concurrent requests")
        .seen_in("ithacaxyz/relay issue 1352"),
    row(RateLimited, &["exceeded the quota"])
        .says("hosted nodes", -32001, "Exceeded the quota usage")
        .seen_in(WEB3_PROXY),
    row(RateLimited, &["reached the quota"])
        .says("hosted nodes", -32000, "reached the quota")
        .seen_in(WEB3_PROXY),
    row(RateLimited, &["requests limited to"])
        .says("hosted nodes", -32000, "requests limited to 25/sec")
        .seen_in(ERPC),
    row(RateLimited, &["timeout on the free tier"])
        .says("drpc", 30, "Request timeout on the free tier, please upgrade your tier to the paid one")
        .seen_in(ERPC),
    row(RateLimited, &["upgrade your tier"])
        .says("drpc", -32000, "Too heavy, please upgrade your tier")
        .seen_in(WEB3_PROXY),
    row(RateLimited, &["under too much load"])
        .says("hosted nodes", -32000, "the node is under too much load")
        .seen_in(ERPC),
    row(RateLimited, &["cannot fulfill request"])
        .says("hosted nodes", -32046, "Cannot fulfill request")
        .seen_in(ERPC),
    row(RateLimited, &["code: 1015"]).answers("cloudflare, llama", 429, "error code: 1015").seen_in(ERPC),
    // Failures behind a gateway.
    row(Fault(Server), &["fatalexternalerror"])
        .says("anvil", -32603, "EVM error FatalExternalError")
        .seen_in("a fork whose origin fails, quoted by an anvil user"),
    row(Fault(Server), &["no server available"])
        .says("hosted nodes", -32000, "No server available")
        .under(503)
        .seen_in(ERPC),
    row(Fault(Server), &["backend offline"])
        .says("proxyd", -32010, "backend offline")
        .under(503)
        .seen_in(PROXYD),
    row(Fault(Server), &["no backend is currently healthy"])
        .says("proxyd", -32011, "no backend is currently healthy to serve traffic")
        .under(503)
        .seen_in(PROXYD),
    row(Fault(Server), &["backend is currently not healthy"])
        .says("proxyd", -32018, "backend is currently not healthy to serve traffic")
        .under(503)
        .seen_in(PROXYD),
    row(Fault(Server), &["backend returned an invalid response"])
        .says("proxyd", -32013, "backend returned an invalid response")
        .under(500)
        .seen_in(PROXYD),
    row(Fault(Timeout), &["gateway timeout"])
        .says("proxyd", -32015, "gateway timeout")
        .under(504)
        .seen_in(PROXYD),
    row(Fault(Timeout), &["gateway time-out"])
        .answers("nginx", 504, "<html><head><title>504 Gateway Time-out</title></head></html>")
        .seen_in("nginx's default page"),
    row(Fault(Server), &["bad gateway"])
        .answers("nginx", 502, "<html>502 Bad Gateway</html>")
        .seen_in(CHAINLINK),
    row(Fault(Server), &["503 service"])
        .answers("nginx", 503, "<html><title>503 Service Temporarily Unavailable</title></html>")
        .seen_in(CHAINLINK),
    row(Fault(Server), &["network is unreachable"])
        .says("gateways", -32603, "dial tcp 10.0.0.1:8545: connect: network is unreachable")
        .seen_in(CHAINLINK),
    row(Fault(Server), &["mdbx_panic"])
        .says("erigon", -32000, "MDBX_PANIC: Environment had a fatal error")
        .seen_in(WEB3_PROXY),
    row(Fault(Server), &["returns a null value for transaction"])
        .says("hedera", -32000, "Transaction execution returns a null value for transaction 0x5a50c00d")
        .seen_in(CHAINLINK),
    row(Fault(Server), &["chainexception: unexpected error"])
        .says("drpc", -32000, "ChainException: Unexpected error (code=40000)")
        .seen_in(ERPC),
    row(Fault(Timeout), &["i/o timeout"])
        .says("gateways", -32603, "read tcp 10.0.0.1:8545: i/o timeout")
        .seen_in(CHAINLINK),
    row(Fault(Timeout), &["context deadline exceeded"])
        .says("geth, gateways", -32000, "context deadline exceeded")
        .seen_in(CHAINLINK),
    row(Fault(Timeout), &["execution timeout"]).says("geth", -32000, "execution timeout").seen_in(ERPC),
    row(Fault(Timeout), &["execution aborted (timeout"])
        .says("geth", -32000, "execution aborted (timeout = 5s)")
        .seen_in(GETH),
    row(Fault(Timeout), &["request timed out"])
        .says("linkpool, chainstack, blockdaemon", -32002, "request timed out")
        .seen_in(CHAINLINK),
    row(Fault(Timeout), &["failed or timed out"])
        .says("hosted nodes", -32603, "request failed or timed out")
        .seen_in("a public incident report"),
    row(Fault(Timeout), &["request timeout"])
        .answers("gateways", 408, "408 Request Timeout")
        .seen_in(CHAINLINK),
    row(Fault(Timeout), &["backend timeout"]).says("gateways", -32000, "backend timeout").seen_in(ERPC),
    // Methods that are not served.
    row(Unsupported, &["does not exist/is not available"])
        .to("eth_maxPriorityFeePerGas")
        .says("geth", -32601, "the method eth_maxPriorityFeePerGas does not exist/is not available")
        .seen_in(GETH),
    row(Unsupported, &["does not exist / is not available"])
        .to("eth_feeHistory")
        .says("routers", -32603, "The method eth_feeHistory does not exist / is not available.")
        .seen_in("a public incident report"),
    row(Unsupported, &["unsupported method"])
        .to("eth_foo")
        .says("alchemy", -32600, "Unsupported method: eth_foo. See available methods in the documentation.")
        .seen_in(ERPC),
    row(Unsupported, &["method not found"])
        .to("eth_foo")
        .says("anvil", -32601, "Method not found")
        .seen_in(ANVIL),
    row(Unsupported, &["method", "is not supported"])
        .to("eth_foo")
        .says("hardhat", -32004, "Method eth_foo is not supported")
        .seen_in(HARDHAT),
    row(Unsupported, &["method not supported"])
        .to("eth_foo")
        .says("EIP-1474 servers", -32004, "Method not supported")
        .seen_in("EIP-1474"),
    row(Unsupported, &["method", "is disabled"])
        .to("debug_traceCall")
        .says("quicknode", -32612, "The method debug_traceCall is disabled")
        .seen_in(ERPC),
    row(Unsupported, &["is not whitelisted"])
        .to("debug_traceCall")
        .says("proxyd", -32601, "rpc method is not whitelisted")
        .under(403)
        .seen_in(PROXYD),
    row(Unsupported, &["unauthorized method"])
        .to("eth_newFilter")
        .says("hosted nodes", -32000, "Unauthorized method: eth_newFilter")
        .seen_in(ETHERS),
    // Credentials.
    row(Fault(Auth), &["invalid api key"])
        .says("hosted nodes", -32000, "invalid api key")
        .under(401)
        .seen_in(ERPC),
    row(Fault(Auth), &["key is inactive"])
        .says("hosted nodes", -32000, "API key is inactive")
        .under(403)
        .seen_in(ERPC),
    row(Fault(Auth), &["token is invalid"]).says("drpc", 4, "token is invalid").under(403).seen_in(ERPC),
    row(Fault(Auth), &["api key is on another chain"])
        .says("blockpi", -32000, "api key is on another chain")
        .seen_in(ERPC),
    row(Fault(Auth), &["be authenticated"])
        .codes(&[-32600])
        .says("alchemy", -32600, "Must be authenticated!")
        .under(401)
        .seen_in(ERPC),
    row(Fault(Auth), &["access key"])
        .codes(&[-32600])
        .says("conduit", -32600, "missing or invalid access key")
        .seen_in(ERPC),
    row(Fault(Auth), &["must authenticate your request"])
        .says("ankr", -32000, "Unauthorized: You must authenticate your request with an API key.")
        .seen_in("ankr, captured by a user"),
    row(Fault(Auth), &["not allowed to access"])
        .says("hosted nodes", -32000, "You are not allowed to access this endpoint")
        .under(403)
        .seen_in(ERPC),
];
