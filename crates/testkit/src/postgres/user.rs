//! Whom the server runs as.

use std::{
    fs, io,
    os::unix::{
        fs::{PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::geteuid;

use crate::Error;

/// The users that a server of root's is given to.
const SERVANTS: [&str; 2] = ["postgres", "nobody"];

/// Whom the server runs as: PostgreSQL refuses to run as root.
pub(super) enum User {
    /// As this process.
    Same,
    /// As another user.
    Other {
        /// Its number.
        uid: u32,
        /// The number of its group.
        gid: u32,
    },
}

impl User {
    pub(super) fn fit() -> Result<Self, Error> {
        if !geteuid().is_root() {
            return Ok(Self::Same);
        }
        let failed = |source| Error::Postgres { doing: "find a user other than root".into(), source };
        let users = fs::read_to_string("/etc/passwd").map_err(failed)?;
        SERVANTS.iter().find_map(|name| entry(&users, name)).ok_or_else(|| {
            failed(io::Error::other(format!("/etc/passwd has none of {}: add one", SERVANTS.join(", "))))
        })
    }

    /// A command that runs as this user.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Its messages are read, and a variable of the caller's must not lead it elsewhere.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C").current_dir("/");
        if let Self::Other { uid, gid } = self {
            command.uid(*uid).gid(*gid);
        }
        command
    }

    /// Gives away what this process has made.
    pub(super) fn own(&self, paths: &[&Path]) -> io::Result<()> {
        if let Self::Other { uid, gid } = self {
            paths.iter().try_for_each(|path| chown(path, Some(*uid), Some(*gid)))?;
        }
        Ok(())
    }

    /// The folder of programs, or, where this user cannot get to it, that of a copy of the server in `room`.
    pub(super) fn reachable(&self, programs: &Path, room: &Path) -> io::Result<PathBuf> {
        let closed =
            |folder: &Path| folder.metadata().is_ok_and(|folder| folder.permissions().mode() & 0o001 == 0);
        match (self, programs.parent(), programs.file_name()) {
            (Self::Other { .. }, Some(server), Some(name)) if programs.ancestors().any(closed) => {
                // What a server consists of that finds its own parts.
                for part in [name, "lib".as_ref(), "share".as_ref()] {
                    if server.join(part).is_dir() {
                        copy_tree(&server.join(part), &room.join(part))?;
                    }
                }
                Ok(room.join(name))
            }
            (Self::Same | Self::Other { .. }, _, _) => Ok(programs.to_owned()),
        }
    }
}

/// `nobody:x:65534:65534:...`.
fn entry(users: &str, name: &str) -> Option<User> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        Some(User::Other { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    })
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&source, &target)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\nnobody2:x:5:6::/:\nnobody:x:65534:65533:nobody:/:\n";
        assert!(matches!(entry(users, "nobody"), Some(User::Other { uid: 65_534, gid: 65_533 })));
        assert!(entry(users, "postgres").is_none());
    }

    #[test]
    fn a_server_that_another_user_cannot_get_to_is_copied_with_its_links() {
        let root = tempfile::tempdir().expect("there is room for a directory");
        let [server, room] = ["private/server", "room"].map(|name| root.path().join(name));
        for folder in [&server.join("bin"), &server.join("lib"), &room] {
            fs::create_dir_all(folder).expect("there is room");
        }
        fs::write(server.join("bin/postgres"), "x").expect("the folder takes files");
        symlink("libpq.so.5.18", server.join("lib/libpq.so.5")).expect("there is nothing yet");

        let programs = server.join("bin");
        assert_eq!(User::Same.reachable(&programs, &room).expect("nothing is to be done"), programs);
        let other = User::Other { uid: 1, gid: 1 };
        fs::set_permissions(root.path().join("private"), fs::Permissions::from_mode(0o700))
            .expect("it is ours");
        let copy = other.reachable(&programs, &room).expect("it can be copied");
        assert_eq!(copy, room.join("bin"));
        assert_eq!(fs::read_to_string(copy.join("postgres")).expect("it was copied"), "x");
        let link = fs::read_link(room.join("lib/libpq.so.5")).expect("it is a link");
        assert_eq!(link, Path::new("libpq.so.5.18"));
        assert_eq!(other.reachable(Path::new("/"), &room).expect("all may look at it"), Path::new("/"));
    }
}
