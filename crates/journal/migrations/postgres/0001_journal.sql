-- Each intent once, by its key on its chain. `records` counts its records: an append that has seen another number is
-- refused. `state`: 0 due, 1 stopped, 2 finished, 3 pruned. `signed`: whether anything was ever signed for it. `opened`
-- is the time of its first record, `changed` of the one with which it stopped or ended, in milliseconds since 1970.
-- `tombstone` is what is left after pruning. Ids are never used again. Each append counts up `records`, which is in no
-- index: room in each page keeps the new version beside the old one.
CREATE TABLE intents (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    chain_id BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    account BYTEA NOT NULL CHECK (length(account) = 20),
    records BIGINT NOT NULL,
    state BIGINT NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3),
    signed BIGINT NOT NULL DEFAULT 0 CHECK (signed IN (0, 1)),
    opened BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    tombstone TEXT,
    UNIQUE (chain_id, key)
) WITH (fillfactor = 70);

CREATE INDEX open_intents ON intents (chain_id, account, state, id) WHERE state < 2;
CREATE INDEX prunable_intents ON intents (chain_id, changed, id)
    WHERE (state = 2 OR (state = 1 AND signed = 0));

-- What became true of an intent, from 1 on. `at` is milliseconds since 1970, `body` the versioned envelope.
CREATE TABLE records (
    intent BIGINT NOT NULL REFERENCES intents (id),
    seq BIGINT NOT NULL CHECK (seq > 0),
    at BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (intent, seq)
);

-- The nonces that are signed for. One of an account belongs to one step of one intent.
CREATE TABLE slots (
    chain_id BIGINT NOT NULL,
    account BYTEA NOT NULL CHECK (length(account) = 20),
    nonce BIGINT NOT NULL CHECK (nonce >= 0),
    intent BIGINT NOT NULL REFERENCES intents (id),
    step TEXT NOT NULL,
    PRIMARY KEY (chain_id, account, nonce)
);

CREATE INDEX slots_of_intents ON slots (intent);

-- Block 0 of each chain, as it was first seen.
CREATE TABLE genesis (
    chain_id BIGINT PRIMARY KEY,
    hash BYTEA NOT NULL CHECK (length(hash) = 32)
);

-- The line of each account: who holds it until when, by the database's clock in milliseconds since 1970, and under
-- which fencing token. `accounted`: the first nonce that the journal knows nothing of, where slots alone do not tell.
-- A claim is extended every few seconds: room in each page keeps the new version beside the old one.
CREATE TABLE lines (
    chain_id BIGINT NOT NULL,
    account BYTEA NOT NULL CHECK (length(account) = 20),
    owner TEXT NOT NULL,
    token BIGINT NOT NULL,
    until BIGINT NOT NULL,
    ttl BIGINT NOT NULL,
    accounted BIGINT,
    PRIMARY KEY (chain_id, account)
) WITH (fillfactor = 50);
