//! Starting, killing and restarting a PostgreSQL server of one's own.

use std::{
    fmt, fs, io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};
use tempfile::TempDir;
use tokio::sync::{OnceCell, oneshot};
use url::Url;

use crate::{
    Error,
    process::{Orphaned, Process},
};
pub use places::PostgresPlaces;
use user::User;

mod family;
mod places;
mod user;

/// The superuser.
const SUPERUSER: &str = "postgres";

/// The user that databases of tests belong to.
const OWNER: &str = "journal";

/// How long a server takes at most to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the server waits until the disk has what is committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// It does, as in production.
    #[default]
    On,
    /// It does not: faster, and as safe where it is only the server that is killed.
    Off,
}

/// How to start a [`Postgres`].
#[derive(Clone, Debug, Default)]
pub struct PostgresBuilder {
    programs: Option<PathBuf>,
    fsync: Fsync,
    settings: Vec<(String, String)>,
}

impl PostgresBuilder {
    /// The folder of the binaries. By default it is the one that [`Postgres::find`] finds.
    pub fn programs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.programs = Some(folder.into());
        self
    }

    /// Whether commits wait for the disk; by default they do.
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.fsync = fsync;
        self
    }

    /// A setting of the server, as in its configuration file.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Makes a cluster in a temporary folder and starts a server on it, on a free port of loopback.
    ///
    /// PostgreSQL refuses to run as root: where this process does, it runs as the user `postgres`, or `nobody`.
    ///
    /// # Errors
    ///
    /// If there is no server, or it does not start; its last words are in the message.
    ///
    /// # Cancel safety
    ///
    /// The server is stopped if the future is dropped.
    pub async fn launch(self) -> Result<Postgres, Error> {
        let programs = match &self.programs {
            Some(folder) => folder.clone(),
            None => Postgres::find()?,
        };
        let password = password();
        let cluster = {
            let password = password.clone();
            let made = tokio::task::spawn_blocking(move || Cluster::make(&programs, &password));
            made.await.map_err(|e| Error::Postgres { doing: "make a cluster".into(), source: e.into() })??
        };
        let mut postgres = Postgres {
            server: None,
            cluster: Arc::new(cluster),
            port: Port::reserve()?,
            password,
            settings: self.settings,
            fsync: self.fsync,
        };
        postgres.start().await?;
        let owner =
            format!("CREATE ROLE {OWNER} LOGIN PASSWORD '{}' NOSUPERUSER NOCREATEDB", postgres.password);
        postgres.sql(&postgres.url(), &owner).await?;
        Ok(postgres)
    }
}

/// A PostgreSQL server of one's own. It ends when this is dropped, and, where there is a POSIX shell, also when this
/// process ends without dropping anything; its folder is removed then.
pub struct Postgres {
    /// `None` while it is down.
    server: Option<Process>,
    cluster: Arc<Cluster>,
    port: Port,
    password: String,
    settings: Vec<(String, String)>,
    fsync: Fsync,
}

impl Postgres {
    /// A server whose commits wait for the disk.
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// A server that all tests of this process share, and that nobody may kill; its commits do not wait for the
    /// disk.
    ///
    /// # Errors
    ///
    /// As for [`PostgresBuilder::launch`]; the next call tries again.
    pub async fn shared() -> Result<&'static Self, Error> {
        static SHARED: OnceCell<Postgres> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::builder().fsync(Fsync::Off).launch()).await
    }

    /// The folder of a server's binaries, in one of the places of [`PostgresPlaces::of_process`].
    ///
    /// # Errors
    ///
    /// If it is in none of these places, or the variable names a folder without.
    pub fn find() -> Result<PathBuf, Error> {
        PostgresPlaces::of_process().find()
    }

    /// Makes an empty database, and returns its address with the name and the password of its owner, who is no
    /// superuser.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub async fn database(&self) -> Result<Url, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.sql(&self.url(), &format!("CREATE DATABASE {name} OWNER {OWNER}")).await?;
        Ok(self.address(OWNER, &name))
    }

    /// The address of the superuser's own database, with name and password.
    pub fn url(&self) -> Url {
        self.address(SUPERUSER, SUPERUSER)
    }

    /// The address at which the superuser reaches a database that [`database`](Self::database) made.
    pub fn superuser(&self, database: &Url) -> Url {
        self.address(SUPERUSER, database.path().trim_start_matches('/'))
    }

    /// The password of both users. It has letters that a URL encodes.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Its port, also while it is down.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The last lines that it wrote since it was started last.
    pub fn output(&self) -> String {
        self.server.as_ref().map(Process::output).unwrap_or_default()
    }

    /// Runs statements on a database, each by itself unless they say otherwise.
    ///
    /// # Errors
    ///
    /// If one fails, or the server does not answer.
    pub async fn sql(&self, url: &Url, statements: &str) -> Result<(), Error> {
        let failed = |e: sqlx::Error| Error::Postgres {
            doing: format!("run {:?}", statements.replace(&self.password, "…")),
            source: io::Error::other(e),
        };
        let mut connection = connect(url).await.map_err(failed)?;
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(&mut connection).await.map_err(failed)?;
        connection.close().await.map_err(failed)
    }

    /// The first column of the first row, as text.
    ///
    /// # Errors
    ///
    /// If there is none, or the server does not answer.
    pub async fn value(&self, url: &Url, query: &str) -> Result<String, Error> {
        let failed =
            |e: sqlx::Error| Error::Postgres { doing: format!("run {query:?}"), source: io::Error::other(e) };
        let mut connection = connect(url).await.map_err(failed)?;
        let query = AssertSqlSafe(format!("SELECT value::text FROM ({query}) AS it (value)"));
        let value = sqlx::query_scalar(query).fetch_one(&mut connection).await.map_err(failed)?;
        connection.close().await.map_err(failed)?;
        Ok(value)
    }

    /// Kills it and all its processes at once, as if the machine had lost its power; what it has not written is
    /// lost. Its port stays closed until [`restart`](Self::restart).
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            family::kill(server.pid());
            server.end();
        }
    }

    /// Stops it in an orderly way: transactions under way are rolled back, connections closed.
    ///
    /// # Errors
    ///
    /// If it does not stop; it is killed then.
    pub async fn stop(&mut self) -> Result<(), Error> {
        let Some(server) = &mut self.server else { return Ok(()) };
        signal(server.pid(), Signal::INT);
        let begun = Instant::now();
        while !server.has_ended() {
            if begun.elapsed() > PATIENCE {
                let output = server.output();
                self.kill();
                return Err(Error::Postgres {
                    doing: "stop it".into(),
                    source: io::Error::other(format!(
                        "it went on for {PATIENCE:?}; its last lines:\n{output}"
                    )),
                });
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.server = None;
        Ok(())
    }

    /// Starts it again with the same data on the same port; where it still runs, it is stopped first.
    ///
    /// # Errors
    ///
    /// If it does not stop or start.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        self.start().await
    }

    async fn start(&mut self) -> Result<(), Error> {
        let program = self.cluster.program("postgres");
        let mut command = self.cluster.user.command(&program);
        let fsync = match self.fsync {
            Fsync::On => "fsync=on",
            Fsync::Off => "fsync=off",
        };
        command.arg("-D").arg(self.cluster.data());
        command.args(["-h", "127.0.0.1", "-p", &self.port.number.to_string(), "-k", ""]);
        // Shared memory that is a file of the cluster goes with it. The rest is for many small tests.
        for setting in
            [fsync, "dynamic_shared_memory_type=mmap", "shared_buffers=32MB", "max_connections=300"]
        {
            command.args(["-c", setting]);
        }
        for (name, value) in &self.settings {
            command.args(["-c", &format!("{name}={value}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|source| Error::Spawn { program: program.clone(), source })?;

        let (ready, listens) = oneshot::channel();
        let mut ready = Some(ready);
        let heard = move |line: &str| {
            if line.contains("ready to accept connections")
                && let Some(ready) = ready.take()
            {
                // Nobody waits any more if the start was given up.
                let _ = ready.send(());
            }
        };
        let orphaned = Orphaned::Removed { folder: self.cluster.folder.path().to_owned() };
        let server = self.server.insert(Process::adopt(child, orphaned, |_| {}, heard));
        // The sender is dropped when the output ends.
        match tokio::time::timeout(PATIENCE, listens).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                let output = server.output();
                self.kill();
                Err(Error::NotListening { program, waited: PATIENCE, output })
            }
        }
    }

    fn address(&self, user: &str, database: &str) -> Url {
        let mut url: Url = format!("postgres://127.0.0.1:{}/{database}", self.port.number)
            .parse()
            .expect("a port and a name make a URL");
        url.set_username(user).expect("the URL has a host");
        url.set_password(Some(&self.password)).expect("the URL has a host");
        url
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(server) = &mut self.server else { return };
        // Asked to quit, it takes its shared memory with it, which a killed one leaves behind.
        signal(server.pid(), Signal::QUIT);
        let begun = Instant::now();
        while !server.has_ended() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.kill();
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("port", &self.port.number).finish_non_exhaustive()
    }
}

/// The files of a server.
struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    user: User,
}

impl Cluster {
    fn make(programs: &Path, password: &str) -> Result<Self, Error> {
        let failed = |source| Error::Postgres { doing: "make a folder for a cluster".into(), source };
        let folder = tempfile::Builder::new()
            .prefix("backstay-postgres-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()
            .map_err(failed)?;
        let user = User::fit()?;
        let programs = user.reachable(programs, folder.path()).map_err(failed)?;
        let cluster = Self { folder, programs, user };
        let secret = cluster.folder.path().join("password");
        fs::write(&secret, password).map_err(failed)?;
        fs::create_dir(cluster.data()).map_err(failed)?;
        cluster.user.own(&[cluster.folder.path(), &cluster.data(), &secret]).map_err(failed)?;

        let program = cluster.program("initdb");
        let mut command = cluster.user.command(&program);
        command.arg("-D").arg(cluster.data()).arg("--pwfile").arg(&secret);
        command.args(["-U", SUPERUSER, "-A", "scram-sha-256", "-N", "--locale=C", "-E", "UTF8"]);
        let output = command.output().map_err(|source| Error::Spawn { program, source })?;
        fs::remove_file(secret).map_err(failed)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Postgres { doing: "make a cluster".into(), source: io::Error::other(said) });
        }
        Ok(cluster)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }
}

/// A port that stays ours while the server is down.
struct Port {
    number: u16,
    /// Other servers of this kind pass over a port whose UDP twin is taken.
    _twin: UdpSocket,
}

impl Port {
    fn reserve() -> Result<Self, Error> {
        // Below the ports that systems give to connections, which could come upon it while the server is down.
        const PORTS: std::ops::Range<u16> = 20_000..32_000;
        let start = (random() % u64::from(PORTS.end - PORTS.start)) as u16;
        let mut failed = io::Error::other("no port is free");
        for number in (PORTS.start + start..PORTS.end).chain(PORTS.start..PORTS.start + start) {
            let address = (Ipv4Addr::LOCALHOST, number);
            match UdpSocket::bind(address).and_then(|twin| TcpListener::bind(address).map(|_| twin)) {
                Ok(twin) => return Ok(Self { number, _twin: twin }),
                Err(error) => failed = error,
            }
        }
        Err(Error::Listen { endpoint: "postgres".into(), source: failed })
    }
}

async fn connect(url: &Url) -> Result<PgConnection, sqlx::Error> {
    PgConnectOptions::from_url(url)?.disable_statement_logging().connect().await
}

fn signal(pid: u32, signal: Signal) {
    // It fails where the process has ended.
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// A password that nobody guesses, with letters that a URL encodes.
fn password() -> String {
    format!("pass@{:016x}/word", random())
}

/// A number that differs each time: the standard library seeds its hash maps by it.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}
