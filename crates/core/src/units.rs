//! Newtypes shared by all rooms.

use std::{fmt, sync::Arc};

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

/// The name of one RPC endpoint, as configured. It is what logs, errors and timelines show; the URL,
/// which may hold a key, never appears there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EndpointName(Arc<str>);

impl EndpointName {
    /// A name as given in the config.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl From<&str> for EndpointName {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// A block by number and hash. The number says where, the hash says which branch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BlockRef {
    /// Height.
    pub number: u64,
    /// Hash.
    pub hash: B256,
}

impl fmt::Display for BlockRef {
    /// The number and the first four bytes of the hash: `123 (0x89abcdef)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = alloy_primitives::hex::encode(&self.hash[..4]);
        write!(f, "{} (0x{head})", self.number)
    }
}
