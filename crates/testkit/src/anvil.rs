//! Finding and running anvil.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use alloy::primitives::{Address, B256};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use url::Url;

use crate::{
    Error,
    process::{Orphaned, Process},
    upstream::Upstream,
};

/// The variable that names the binary.
const VARIABLE: &str = "BACKSTAY_ANVIL";

/// The start of the first anvil of this process: nodes that are not told otherwise share it, so that whether
/// they have one genesis does not depend on the second in which each was started.
static DEFAULT_TIMESTAMP: LazyLock<u64> =
    LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs()));

/// How to start an [`Anvil`].
#[derive(Clone, Debug)]
pub struct AnvilBuilder {
    program: Option<PathBuf>,
    timestamp: Option<u64>,
    chain_id: Option<u64>,
    block_time: Option<Duration>,
    fork: Option<(Url, Option<u64>)>,
    args: Vec<OsString>,
    startup: Duration,
}

impl Default for AnvilBuilder {
    fn default() -> Self {
        Self {
            program: None,
            timestamp: None,
            chain_id: None,
            block_time: None,
            fork: None,
            args: Vec::new(),
            startup: Duration::from_secs(20),
        }
    }
}

impl AnvilBuilder {
    /// The binary to run. By default it is the one that [`Anvil::find`] finds.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// The timestamp of the genesis in seconds since 1970. It alone decides the genesis hash: nodes of one
    /// timestamp have one genesis, whatever their chain id. By default all nodes of a process share the time at
    /// which the first was built.
    pub fn timestamp(mut self, seconds: u64) -> Self {
        self.timestamp = Some(seconds);
        self
    }

    /// The chain id; anvil's default is 31337.
    pub fn chain_id(mut self, chain_id: u64) -> Self {
        self.chain_id = Some(chain_id);
        self
    }

    /// A block every so often. By default each transaction is mined at once in a block of its own.
    pub fn block_time(mut self, period: Duration) -> Self {
        self.block_time = Some(period);
        self
    }

    /// Forks the chain at `url` at its head. A fork has its origin's genesis and chain id, and mines what it
    /// is sent itself.
    pub fn fork(mut self, url: &Url) -> Self {
        self.fork = Some((url.clone(), None));
        self
    }

    /// Forks the chain at `url` at this block.
    pub fn fork_at(mut self, url: &Url, block: u64) -> Self {
        self.fork = Some((url.clone(), Some(block)));
        self
    }

    /// One more argument of the command line.
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// More arguments of the command line.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// How long to wait until it listens; by default 20 s.
    pub fn startup_timeout(mut self, timeout: Duration) -> Self {
        self.startup = timeout;
        self
    }

    /// Starts the node and waits until it listens on a free port of loopback.
    ///
    /// # Errors
    ///
    /// If there is no binary, it cannot be run, or it does not listen in time; the node's last words are in
    /// the message.
    ///
    /// # Cancel safety
    ///
    /// The node is killed if the future is dropped.
    pub async fn launch(self) -> Result<Anvil, Error> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => Anvil::find()?,
        };
        let mut command = Command::new(&program);
        command.args(["--host", "127.0.0.1", "--port", "0"]);
        command.arg("--timestamp").arg(self.timestamp.unwrap_or(*DEFAULT_TIMESTAMP).to_string());
        if let Some(chain_id) = self.chain_id {
            command.arg("--chain-id").arg(chain_id.to_string());
        }
        if let Some(period) = self.block_time {
            command.arg("--block-time").arg(period.as_secs_f64().to_string());
        }
        if let Some((url, block)) = &self.fork {
            command.arg("--fork-url").arg(url.as_str());
            if let Some(block) = block {
                command.arg("--fork-block-number").arg(block.to_string());
            }
        }
        command.args(&self.args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());

        let child = command.spawn().map_err(|source| Error::Spawn { program: program.clone(), source })?;
        let (ready, banner) = oneshot::channel();
        let mut reader = BannerReader::new(ready);
        // The reader, and with it the sender, is dropped when the output ends.
        let mut process = Process::adopt(child, Orphaned::Killed, move |line| reader.line(line), |_| {});
        match tokio::time::timeout(self.startup, banner).await {
            Ok(Ok(Banner { port, accounts, keys })) => {
                let url = format!("http://127.0.0.1:{port}/").parse().expect("a port makes a URL");
                Ok(Anvil { process, url, accounts, keys })
            }
            Ok(Err(_)) | Err(_) => {
                process.end();
                Err(Error::NotListening { program, waited: self.startup, output: process.output() })
            }
        }
    }
}

/// A running anvil. It is killed when this is dropped, and, where there is a POSIX shell, also when this process
/// ends without dropping anything.
#[derive(Debug)]
pub struct Anvil {
    process: Process,
    url: Url,
    accounts: Vec<Address>,
    keys: Vec<B256>,
}

impl Anvil {
    /// A node that mines each transaction at once.
    pub fn builder() -> AnvilBuilder {
        AnvilBuilder::default()
    }

    /// The binary: what the variable `BACKSTAY_ANVIL` names, else `anvil` on `PATH`, else
    /// `contracts/node_modules/@foundry-rs/anvil-<platform>/bin/anvil` in the current directory or one above.
    ///
    /// # Errors
    ///
    /// If it is in none of these places, or the variable names something that is not a file.
    pub fn find() -> Result<PathBuf, Error> {
        let from = env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        find_in(env::var_os(VARIABLE), env::var_os("PATH"), &from)
    }

    /// Its address.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The funded accounts.
    pub fn accounts(&self) -> &[Address] {
        &self.accounts
    }

    /// The private keys of [`accounts`](Self::accounts), in the same order.
    pub fn keys(&self) -> &[B256] {
        &self.keys
    }

    /// The last lines that it wrote.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Kills it now.
    pub fn kill(&mut self) {
        self.process.end();
    }

    /// Asks it directly, past every fault program.
    ///
    /// # Errors
    ///
    /// If it does not answer, or answers with an error.
    pub async fn rpc(&self, method: &str, params: Value) -> Result<Value, Error> {
        // A client of its own: one that is kept would be bound to the runtime that used it first.
        Upstream::new(self.url.clone()).result_of(method, params).await
    }

    /// Mines empty blocks, or blocks with what is in the pool.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn mine(&self, blocks: u64) -> Result<(), Error> {
        self.rpc("anvil_mine", json!([format!("{blocks:#x}")])).await.map(drop)
    }

    /// Mines blocks whose times are this far apart, in whole seconds, as if they had come one by one.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn mine_spaced(&self, blocks: u64, spacing: Duration) -> Result<(), Error> {
        let params = json!([format!("{blocks:#x}"), format!("{:#x}", spacing.as_secs())]);
        self.rpc("anvil_mine", params).await.map(drop)
    }

    /// The number of its head.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn head(&self) -> Result<u64, Error> {
        Upstream::new(self.url.clone()).head().await
    }
}

fn find_in(variable: Option<OsString>, path: Option<OsString>, from: &Path) -> Result<PathBuf, Error> {
    if let Some(named) = variable.filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        return if path.is_file() { Ok(path) } else { Err(Error::BadAnvilVariable { path }) };
    }
    let binary = format!("anvil{}", env::consts::EXE_SUFFIX);
    let directories = path.as_deref().map(|path| env::split_paths(path).collect::<Vec<_>>());
    let wanted = format!("contracts/node_modules/@foundry-rs/anvil-{}/bin/{binary}", platform());
    directories
        .into_iter()
        .flatten()
        .map(|directory| directory.join(&binary))
        .chain(from.ancestors().map(|directory| directory.join(&wanted)))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Error::NoAnvil { from: from.to_owned(), wanted })
}

/// The platform as the npm packages name it.
fn platform() -> String {
    let system = match env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    let machine = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{system}-{machine}")
}

/// What anvil prints before it listens.
#[derive(Debug)]
struct Banner {
    port: u16,
    accounts: Vec<Address>,
    keys: Vec<B256>,
}

/// Finds the banner in what anvil prints, line by line.
struct BannerReader {
    /// `None` once it has been told.
    ready: Option<oneshot::Sender<Banner>>,
    accounts: Vec<Address>,
    keys: Vec<B256>,
}

impl BannerReader {
    fn new(ready: oneshot::Sender<Banner>) -> Self {
        Self { ready: Some(ready), accounts: Vec::new(), keys: Vec::new() }
    }

    fn line(&mut self, line: &str) {
        if self.ready.is_none() {
            return;
        }
        // "(0) 0xf39F… (10000.000000000000000000 ETH)" and "(0) 0xac09…".
        if let Some(word) = line.strip_prefix('(').and_then(|rest| rest.split_whitespace().nth(1)) {
            if let Ok(account) = word.trim_matches('"').parse() {
                self.accounts.push(account);
            } else if let Ok(key) = word.parse() {
                self.keys.push(key);
            }
        }
        let port = line
            .strip_prefix("Listening on ")
            .and_then(|address| address.rsplit_once(':').and_then(|(_, port)| port.trim().parse().ok()));
        if let (Some(port), Some(ready)) = (port, port.and_then(|_| self.ready.take())) {
            let banner = Banner {
                port,
                accounts: std::mem::take(&mut self.accounts),
                keys: std::mem::take(&mut self.keys),
            };
            // Nobody waits any more if the launch was given up.
            let _ = ready.send(banner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().expect("the path has a directory")).expect("it can be made");
        std::fs::write(path, "").expect("the directory takes files");
    }

    #[test]
    fn the_variable_comes_before_the_path_and_the_project() {
        let root = tempfile::tempdir().expect("there is room for a directory");
        let binary = format!("anvil{}", env::consts::EXE_SUFFIX);
        let [named, on_path] = ["named", "on_path"].map(|name| root.path().join(name).join(&binary));
        let below = root.path().join("a/b");
        let packed =
            root.path().join(format!("contracts/node_modules/@foundry-rs/anvil-{}/bin/{binary}", platform()));
        let path = || on_path.parent().map(|directory| directory.as_os_str().to_owned());

        let error = find_in(None, path(), &below).expect_err("there is none yet").to_string();
        for place in ["BACKSTAY_ANVIL", "PATH", "contracts/node_modules/@foundry-rs/anvil-", "npm ci"] {
            assert!(error.contains(place), "{error}");
        }
        touch(&packed);
        assert_eq!(find_in(None, path(), &below).expect("it is there"), packed);
        touch(&on_path);
        assert_eq!(find_in(None, path(), &below).expect("it is there"), on_path);
        assert!(matches!(
            find_in(Some(named.clone().into()), path(), &below),
            Err(Error::BadAnvilVariable { .. })
        ));
        touch(&named);
        assert_eq!(find_in(Some(named.clone().into()), path(), &below).expect("it is there"), named);
    }

    #[test]
    fn the_banner_tells_port_accounts_and_keys() {
        let text = "Available Accounts\n\n(0) 0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266 (10000 ETH)\n\n\
            Private Keys\n\n(0) 0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80\n\
            Listening on 127.0.0.1:33373\n";
        let (ready, mut banner) = oneshot::channel();
        let mut reader = BannerReader::new(ready);
        text.lines().for_each(|line| reader.line(line));
        let Banner { port, accounts, keys } = banner.try_recv().expect("it listens");
        assert_eq!((port, accounts.len(), keys.len()), (33373, 1, 1));
    }
}
