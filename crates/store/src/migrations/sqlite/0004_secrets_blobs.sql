-- Secrets, sealed, and what is kept outside of the database.

-- A secret's name, and who may have it. Stays when its versions are removed, so that no number is used twice.
CREATE TABLE secrets (
    org_id       INTEGER NOT NULL,
    name         TEXT NOT NULL,
    last_version INTEGER NOT NULL,
    -- One in each line; any if there is none.
    queues       TEXT NOT NULL,
    workflows    TEXT NOT NULL,
    PRIMARY KEY (org_id, name)
) STRICT, WITHOUT ROWID;

-- What is sealed is bound to its org, name and version.
CREATE TABLE secret_versions (
    org_id     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    key_id     TEXT NOT NULL,
    nonce      BLOB NOT NULL,
    ciphertext BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, name, version)
) STRICT;

-- Chunks of logs that are too large for a row: their key in the blob store. Their content is empty here.
ALTER TABLE step_logs ADD COLUMN blob TEXT;

-- Runs that may have something in the blob store; written before anything is put there. Those whose head is gone have it
-- removed, then their row here.
CREATE TABLE run_blobs (
    org_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    gone   INTEGER NOT NULL,
    PRIMARY KEY (org_id, run_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX run_blobs_gone ON run_blobs (org_id, run_id) WHERE gone = 1;
