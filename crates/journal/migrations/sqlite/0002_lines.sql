-- How far each intent is: 0 due, 1 stopped, 2 finished, 3 pruned. `signed`: whether anything was ever signed for it.
-- `opened` is the time of its first record, `changed` of the one with which it stopped or ended. `tombstone` is what is left after pruning.
DROP INDEX unfinished_intents;
ALTER TABLE intents ADD COLUMN state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 3);
ALTER TABLE intents ADD COLUMN signed INTEGER NOT NULL DEFAULT 0 CHECK (signed IN (0, 1));
ALTER TABLE intents ADD COLUMN opened INTEGER NOT NULL DEFAULT 0;
ALTER TABLE intents ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE intents ADD COLUMN tombstone TEXT;
-- What is open may have been given up by whoever was told of an error: it has stopped.
UPDATE intents SET
    state = CASE WHEN finished = 1 THEN 2 ELSE 1 END,
    signed = EXISTS (SELECT 1 FROM records WHERE intent = id AND body LIKE '{"v":1,"record":{"signed":%'),
    opened = coalesce((SELECT min(at) FROM records WHERE intent = id), 0),
    changed = coalesce((SELECT max(at) FROM records WHERE intent = id), 0);
INSERT INTO records (intent, seq, at, body)
    SELECT id, records + 1, changed, '{"v":1,"record":{"stopped":{"stop":{"why":"an older version left it open, and did '
        || 'not write down why","retry":"later","delivery":"unknown"}}}}'
    FROM intents WHERE state = 1;
UPDATE intents SET records = records + 1 WHERE state = 1;
ALTER TABLE intents DROP COLUMN finished;

CREATE INDEX open_intents ON intents (chain_id, account, state, id) WHERE state < 2;
CREATE INDEX prunable_intents ON intents (chain_id, changed, id)
    WHERE (state = 2 OR (state = 1 AND signed = 0));
CREATE INDEX slots_of_intents ON slots (intent);

-- The line of each account: who holds it until when, by the database's clock in milliseconds since 1970, and under
-- which fencing token. `accounted`: the first nonce that the journal knows nothing of, where slots alone do not tell.
CREATE TABLE lines (
    chain_id INTEGER NOT NULL,
    account BLOB NOT NULL CHECK (length(account) = 20),
    owner TEXT NOT NULL,
    token INTEGER NOT NULL,
    until INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    accounted INTEGER,
    PRIMARY KEY (chain_id, account)
) STRICT, WITHOUT ROWID;
