-- Times are microseconds since 1970, ids are 16 bytes, digests 32. Tables that grow with the work carry no foreign keys:
-- their rows are written together and dropped together.

CREATE TABLE orgs (
    id         INTEGER PRIMARY KEY,
    slug       TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

INSERT INTO orgs (id, slug, name, created_at) VALUES (1, 'default', 'default', 0);

-- The head of each run. A step changes nothing but `last_seq`, so that column is in no index.
CREATE TABLE runs (
    org_id           INTEGER NOT NULL,
    run_id           BLOB NOT NULL CHECK (length(run_id) = 16),
    last_seq         INTEGER NOT NULL,
    status           TEXT NOT NULL,
    owner            INTEGER,
    priority         INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    started_at       INTEGER,
    completed_at     INTEGER,
    workflow         TEXT NOT NULL,
    workflow_version TEXT NOT NULL,
    plan_hash        BLOB NOT NULL,
    request_id       TEXT,
    base_run_id      BLOB,
    parent_run_id    BLOB,
    PRIMARY KEY (org_id, run_id)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX runs_by_request ON runs (org_id, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX runs_by_owner ON runs (owner, run_id) WHERE owner IS NOT NULL;

-- The log. Rows lie in the order of their commits, not by run: a commit to many runs then fills a few pages instead of
-- touching one of each run (measured: half the bytes written in batches of 64 and more).
-- `data` comes last: what is read without it stays on the first page of a long row.
CREATE TABLE run_events (
    org_id              INTEGER NOT NULL,
    run_id              BLOB NOT NULL,
    run_seq             INTEGER NOT NULL,
    format              INTEGER NOT NULL,
    event_type          TEXT NOT NULL,
    step_id             TEXT,
    logical_attempt     INTEGER,
    engine_attempt      INTEGER,
    idempotency_key     BLOB NOT NULL,
    caused_by_signal_id BLOB,
    parent_seq          INTEGER,
    emitted_at          INTEGER NOT NULL,
    persisted_at        INTEGER NOT NULL,
    data                TEXT NOT NULL,
    PRIMARY KEY (org_id, run_id, run_seq)
) STRICT;

CREATE UNIQUE INDEX run_events_by_key ON run_events (org_id, run_id, idempotency_key);

CREATE TABLE run_checkpoints (
    org_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    seq    INTEGER NOT NULL,
    format INTEGER NOT NULL,
    state  BLOB NOT NULL,
    PRIMARY KEY (org_id, run_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE timers (
    org_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    seq    INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    PRIMARY KEY (org_id, run_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX timers_by_due ON timers (due_at);

CREATE TABLE run_slots (
    org_id     INTEGER NOT NULL,
    run_id     BLOB NOT NULL,
    slot_key   TEXT NOT NULL,
    holding    INTEGER NOT NULL,
    slot_limit INTEGER,
    priority   INTEGER NOT NULL,
    PRIMARY KEY (org_id, run_id)
) STRICT, WITHOUT ROWID;

-- In the order in which those that wait go on.
CREATE INDEX run_slots_by_key ON run_slots (org_id, slot_key, holding, priority DESC, run_id);

CREATE TABLE nodes (
    node_id          INTEGER PRIMARY KEY,
    lease_expires_at INTEGER NOT NULL,
    left             INTEGER NOT NULL
) STRICT;

CREATE TABLE cas_blobs (
    org_id     INTEGER NOT NULL,
    hash       BLOB NOT NULL,
    media_type TEXT NOT NULL,
    format     INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    content    BLOB NOT NULL,
    PRIMARY KEY (org_id, hash)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER cas_blobs_never_change BEFORE UPDATE ON cas_blobs
BEGIN
    SELECT RAISE(ABORT, 'a blob never changes: its name is the digest of its content');
END;

CREATE TABLE tags (
    org_id      INTEGER NOT NULL,
    tag         TEXT NOT NULL,
    target_hash BLOB NOT NULL,
    version     INTEGER NOT NULL,
    moved_at    INTEGER NOT NULL,
    PRIMARY KEY (org_id, tag)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_snapshots (
    org_id           INTEGER NOT NULL,
    run_id           BLOB NOT NULL,
    last_event_seq   INTEGER NOT NULL,
    status           TEXT NOT NULL,
    workflow         TEXT NOT NULL,
    workflow_version TEXT NOT NULL,
    request_id       TEXT,
    base_run_id      BLOB,
    parent_run_id    BLOB,
    priority         INTEGER NOT NULL,
    steps_total      INTEGER NOT NULL,
    steps_done       INTEGER NOT NULL,
    steps_failed     INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    started_at       INTEGER,
    completed_at     INTEGER,
    error            TEXT,
    PRIMARY KEY (org_id, run_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX run_snapshots_by_status ON run_snapshots (org_id, status, run_id);
CREATE INDEX run_snapshots_by_workflow ON run_snapshots (org_id, workflow, run_id);

CREATE TABLE run_steps (
    org_id          INTEGER NOT NULL,
    run_id          BLOB NOT NULL,
    step_id         TEXT NOT NULL,
    skill           TEXT NOT NULL,
    status          TEXT NOT NULL,
    skip_reason     TEXT,
    logical_attempt INTEGER NOT NULL,
    engine_attempt  INTEGER NOT NULL,
    input_hash      BLOB,
    output_seq      INTEGER,
    started_at      INTEGER,
    ended_at        INTEGER,
    error           TEXT,
    PRIMARY KEY (org_id, run_id, step_id)
) STRICT, WITHOUT ROWID;

-- The changes of a run's status, read from its log.
CREATE VIEW run_state_transitions AS
SELECT org_id,
       run_id,
       run_seq,
       lag(to_status) OVER (PARTITION BY org_id, run_id ORDER BY run_seq) AS from_status,
       to_status,
       caused_by_signal_id,
       emitted_at
FROM (
    SELECT org_id,
           run_id,
           run_seq,
           CASE event_type
               WHEN 'RunQueued' THEN coalesce(json_extract(data, '$.status'), 'queued')
               WHEN 'RunApproved' THEN 'approved'
               WHEN 'RunPaused' THEN 'paused'
               WHEN 'RunCompleted' THEN 'completed'
               WHEN 'RunFailed' THEN 'failed'
               WHEN 'RunCancelled' THEN 'cancelled'
               WHEN 'RunTerminated' THEN 'terminated'
               ELSE 'running'
           END AS to_status,
           caused_by_signal_id,
           emitted_at
    FROM run_events
    WHERE event_type IN ('RunQueued', 'RunApproved', 'RunStarted', 'RunPaused', 'RunResumed', 'RunCompleted',
                         'RunFailed', 'RunCancelled', 'RunTerminated', 'RunReopened')
);
