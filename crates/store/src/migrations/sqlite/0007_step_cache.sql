-- Results of steps, by what they were made of. `run_id` is 16 zero bytes for a result that serves every run of its
-- workflow, else the one run that it serves. Who made it may be forgotten: the output is here.
CREATE TABLE step_cache (
    org_id       INTEGER NOT NULL,
    key          BLOB NOT NULL CHECK (length(key) = 32),
    run_id       BLOB NOT NULL CHECK (length(run_id) = 16),
    workflow     TEXT NOT NULL,
    step_id      TEXT NOT NULL,
    trust        TEXT NOT NULL CHECK (trust IN ('open', 'protected')),
    producer_run BLOB NOT NULL CHECK (length(producer_run) = 16),
    producer_seq INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    last_hit_at  INTEGER,
    hits         INTEGER NOT NULL,
    duration_ms  INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    output_hash  BLOB NOT NULL CHECK (length(output_hash) = 32),
    output       TEXT NOT NULL,
    -- Files that the result names, as its event has them.
    artifacts    TEXT,
    PRIMARY KEY (org_id, key, run_id)
) STRICT;

CREATE INDEX step_cache_by_step ON step_cache (org_id, workflow, step_id, key, run_id);
-- What goes with its run.
CREATE INDEX step_cache_by_run ON step_cache (run_id) WHERE run_id <> x'00000000000000000000000000000000';

-- What keys are made of, by the key, which is its hash. There is one for each attempt that began, whatever became of it;
-- of several the first, which `run_id` made.
CREATE TABLE cache_preimages (
    org_id     INTEGER NOT NULL,
    key        BLOB NOT NULL CHECK (length(key) = 32),
    workflow   TEXT NOT NULL,
    step_id    TEXT NOT NULL,
    run_id     BLOB NOT NULL CHECK (length(run_id) = 16),
    created_at INTEGER NOT NULL,
    preimage   TEXT NOT NULL,
    PRIMARY KEY (org_id, key)
) STRICT;

CREATE INDEX cache_preimages_by_age ON cache_preimages (created_at);
-- What a step began with lately.
CREATE INDEX cache_preimages_by_step ON cache_preimages (org_id, workflow, step_id, created_at);

-- What is counted of each step beside its results: attempts that had to run, and the hits of results that are gone.
CREATE TABLE cache_counts (
    org_id   INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    step_id  TEXT NOT NULL,
    hits     INTEGER NOT NULL,
    misses   INTEGER NOT NULL,
    saved_ms INTEGER NOT NULL,
    PRIMARY KEY (org_id, workflow, step_id)
) STRICT, WITHOUT ROWID;

-- How often the results of a workflow (its `step_id` is empty) or of a step were disowned.
CREATE TABLE cache_epochs (
    org_id   INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    step_id  TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    PRIMARY KEY (org_id, workflow, step_id)
) STRICT, WITHOUT ROWID;

-- Results that are being made, and by which step of which run; `run_id` is as in `step_cache`, `item` is -1 for a whole step.
CREATE TABLE cache_flights (
    org_id     INTEGER NOT NULL,
    key        BLOB NOT NULL CHECK (length(key) = 32),
    run_id     BLOB NOT NULL CHECK (length(run_id) = 16),
    leader_run BLOB NOT NULL CHECK (length(leader_run) = 16),
    step       INTEGER NOT NULL,
    item       INTEGER NOT NULL,
    since      INTEGER NOT NULL,
    PRIMARY KEY (org_id, key, run_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX cache_flights_by_leader ON cache_flights (org_id, leader_run, step, item);
