-- What runs leave: files, and where their content is.

-- Content in the blob store, by org and hash. A key of the blob store is used once. `used_at` is when somebody last uploaded
-- or was about to name it, give or take a few minutes: what nobody names goes a while after that.
CREATE TABLE artifact_blobs (
    org_id     INTEGER NOT NULL,
    sha256     BLOB NOT NULL CHECK (length(sha256) = 32),
    blob       TEXT NOT NULL UNIQUE,
    size_bytes INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    PRIMARY KEY (org_id, sha256)
) STRICT, WITHOUT ROWID;

-- Keys that a row of `artifact_blobs` is about to name, or named once. They go, with what is there, after a while.
CREATE TABLE blob_notes (
    blob     TEXT PRIMARY KEY,
    noted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Results of steps that name content; one that was replaced or is gone may still be here (see its `artifacts`).
CREATE TABLE cache_blobs (
    org_id INTEGER NOT NULL,
    sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
    key    BLOB NOT NULL,
    run_id BLOB NOT NULL,
    PRIMARY KEY (org_id, sha256, key, run_id)
) STRICT, WITHOUT ROWID;

-- Of each event that records artifacts (`seq`), those that it records (`place`). The event is the truth.
CREATE TABLE artifacts (
    org_id        INTEGER NOT NULL,
    run_id        BLOB NOT NULL CHECK (length(run_id) = 16),
    seq           INTEGER NOT NULL,
    place         INTEGER NOT NULL,
    artifact_id   BLOB NOT NULL CHECK (length(artifact_id) = 16),
    step_id       TEXT,
    skill         TEXT,
    kind          TEXT NOT NULL,
    uri           TEXT NOT NULL,
    sha256        BLOB,
    size_bytes    INTEGER,
    media_type    TEXT,
    filename      TEXT,
    training_step INTEGER,
    metadata      TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER,
    PRIMARY KEY (org_id, run_id, seq, place)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX artifacts_by_id ON artifacts (org_id, run_id, artifact_id);
CREATE UNIQUE INDEX artifacts_by_training_step ON artifacts (org_id, run_id, kind, training_step)
    WHERE training_step IS NOT NULL;
CREATE INDEX artifacts_by_kind ON artifacts (org_id, run_id, kind, seq, place);
CREATE INDEX artifacts_by_step ON artifacts (org_id, run_id, step_id, seq, place) WHERE step_id IS NOT NULL;
CREATE INDEX artifacts_by_expiry ON artifacts (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX artifacts_by_content ON artifacts (sha256, org_id) WHERE sha256 IS NOT NULL;
