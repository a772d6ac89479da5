//! A disk that fails: SQLite's own way to its files, with trouble put in between, for the files of one folder.
//!
//! SQLite reaches files through a table of functions. The default one is replaced by a copy of itself whose `open`,
//! `write` and `sync` look for trouble first. So it takes no small file system and no privilege to fill a disk.
#![expect(unsafe_code, reason = "SQLite's interface to files is C")]

use std::{
    collections::HashMap,
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
    sync::{LazyLock, Mutex, MutexGuard, Once, OnceLock, PoisonError},
};

use libsqlite3_sys::{
    SQLITE_FULL, SQLITE_IOERR_FSYNC, SQLITE_IOERR_WRITE, SQLITE_OK, SQLITE_OPEN_CREATE, SQLITE_OPEN_READONLY,
    SQLITE_OPEN_READWRITE, sqlite3_file, sqlite3_initialize, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs,
    sqlite3_vfs_find, sqlite3_vfs_register,
};

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It has no space left.
    Full,
    /// It was remounted read-only, as after an error of the device: what is open cannot be written, and what is
    /// opened is opened for reading.
    ReadOnly,
    /// It takes what is written, and fails to make it durable.
    Unsynced,
}

/// The disk under one folder. Copies are the same disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Must be made before the first file in the folder is opened.
    pub(super) fn under(folder: &Path) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(install);
        Self { folder: folder.canonicalize().expect("the folder is there") }
    }

    /// From now on, until it heals.
    pub(super) fn fails(&self, trouble: Trouble) {
        locked(&TROUBLES).insert(self.folder.clone(), trouble);
    }

    pub(super) fn heals(&self) {
        locked(&TROUBLES).remove(&self.folder);
    }
}

/// A file that SQLite has open: its folder, and SQLite's own functions for it.
#[derive(Clone)]
struct Opened {
    folder: PathBuf,
    own: &'static sqlite3_io_methods,
}

static TROUBLES: LazyLock<Mutex<HashMap<PathBuf, Trouble>>> = LazyLock::new(Mutex::default);
/// By the address of SQLite's file.
static OPENED: LazyLock<Mutex<HashMap<usize, Opened>>> = LazyLock::new(Mutex::default);
/// The tables with our functions in them, by the address of SQLite's own.
static TABLES: LazyLock<Mutex<HashMap<usize, &'static sqlite3_io_methods>>> = LazyLock::new(Mutex::default);
static OWN_OPEN: OnceLock<Open> = OnceLock::new();

type Open =
    unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, *mut sqlite3_file, c_int, *mut c_int) -> c_int;

fn install() {
    // SAFETY: SQLite is initialised, so that there is a default; the copy, which is never freed, differs from it only
    // in its name and in a function of the same type.
    unsafe {
        assert_eq!(sqlite3_initialize(), SQLITE_OK);
        let own = sqlite3_vfs_find(ptr::null());
        let mut copy = *own;
        OWN_OPEN.set(copy.xOpen.expect("files can be opened")).expect("it is installed once");
        copy.xOpen = Some(open);
        copy.zName = c"failing".as_ptr();
        copy.pNext = ptr::null_mut();
        assert_eq!(sqlite3_vfs_register(Box::leak(Box::new(copy)), 1), SQLITE_OK);
    }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let own_open = OWN_OPEN.get().expect("it is installed");
    // SAFETY: a name is a C string, or null for a file that is deleted at once.
    let folder = (!name.is_null())
        .then(|| PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes())))
        .and_then(|path| path.parent().map(Path::to_owned));
    let flags = match folder.as_deref().and_then(trouble_in) {
        Some(Trouble::ReadOnly) => {
            (flags & !(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) | SQLITE_OPEN_READONLY
        }
        Some(Trouble::Full | Trouble::Unsynced) | None => flags,
    };
    // SAFETY: these are SQLite's own arguments. A file that was opened has a table, which SQLite never frees.
    unsafe {
        let opened = own_open(vfs, name, file, flags, out);
        if let (SQLITE_OK, Some(folder)) = (opened, folder) {
            let own: &'static sqlite3_io_methods = &*(*file).pMethods;
            locked(&OPENED).insert(file as usize, Opened { folder, own });
            (*file).pMethods = table_over(own);
        }
        opened
    }
}

fn table_over(own: &'static sqlite3_io_methods) -> &'static sqlite3_io_methods {
    locked(&TABLES).entry(ptr::from_ref(own) as usize).or_insert_with(|| {
        let ours = sqlite3_io_methods { xClose: Some(close), xWrite: Some(write), xSync: Some(sync), ..*own };
        Box::leak(Box::new(ours))
    })
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    count: c_int,
    offset: sqlite3_int64,
) -> c_int {
    let Opened { folder, own } = opened(file);
    match trouble_in(&folder) {
        Some(Trouble::Full) => SQLITE_FULL,
        // What SQLite makes of the system's error.
        Some(Trouble::ReadOnly) => SQLITE_IOERR_WRITE,
        // SAFETY: SQLite's own arguments to its own function.
        Some(Trouble::Unsynced) | None => unsafe {
            own.xWrite.expect("files can be written")(file, bytes, count, offset)
        },
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    let Opened { folder, own } = opened(file);
    match trouble_in(&folder) {
        Some(Trouble::Unsynced) => SQLITE_IOERR_FSYNC,
        // SAFETY: SQLite's own arguments to its own function.
        Some(Trouble::Full | Trouble::ReadOnly) | None => unsafe {
            own.xSync.expect("files can be synced")(file, flags)
        },
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let own = opened(file).own;
    locked(&OPENED).remove(&(file as usize));
    // SAFETY: SQLite's own argument to its own function.
    unsafe { own.xClose.expect("files can be closed")(file) }
}

fn opened(file: *mut sqlite3_file) -> Opened {
    locked(&OPENED).get(&(file as usize)).cloned().expect("only an open file has our functions")
}

fn trouble_in(folder: &Path) -> Option<Trouble> {
    locked(&TROUBLES).get(folder).copied()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
