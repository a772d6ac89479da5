-- Each intent once, by its key on its chain. `records` counts its records: an append that has seen another
-- number is refused. Ids are never used again.
CREATE TABLE intents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chain_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    account BLOB NOT NULL CHECK (length(account) = 20),
    records INTEGER NOT NULL,
    finished INTEGER NOT NULL DEFAULT 0 CHECK (finished IN (0, 1)),
    UNIQUE (chain_id, key)
) STRICT;

CREATE INDEX unfinished_intents ON intents (chain_id, id) WHERE finished = 0;

-- What became true of an intent, from 1 on. `at` is milliseconds since 1970, `body` the versioned envelope.
CREATE TABLE records (
    intent INTEGER NOT NULL REFERENCES intents (id),
    seq INTEGER NOT NULL CHECK (seq > 0),
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (intent, seq)
) STRICT;

-- The nonces that are signed for. One of an account belongs to one step of one intent.
CREATE TABLE slots (
    chain_id INTEGER NOT NULL,
    account BLOB NOT NULL CHECK (length(account) = 20),
    nonce INTEGER NOT NULL CHECK (nonce >= 0),
    intent INTEGER NOT NULL REFERENCES intents (id),
    step TEXT NOT NULL,
    PRIMARY KEY (chain_id, account, nonce)
) STRICT, WITHOUT ROWID;

-- Block 0 of each chain, as it was first seen.
CREATE TABLE genesis (
    chain_id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;
