-- Results of steps, by what they were made of. `run_id` is the nil UUID for a result that serves every run of its workflow,
-- else the one run that it serves. Who made it may be forgotten: the output is here. Hits are counted in place.
CREATE TABLE step_cache (
    org_id       integer NOT NULL,
    key          bytea NOT NULL,
    run_id       uuid NOT NULL,
    producer_run uuid NOT NULL,
    producer_seq bigint NOT NULL,
    created_at   bigint NOT NULL,
    last_hit_at  bigint,
    hits         bigint NOT NULL,
    duration_ms  bigint NOT NULL,
    bytes        bigint NOT NULL,
    output_hash  bytea NOT NULL,
    workflow     text COLLATE "C" NOT NULL,
    step_id      text COLLATE "C" NOT NULL,
    trust        text NOT NULL CHECK (trust IN ('open', 'protected')),
    output       text NOT NULL,
    -- Files that the result names, as its event has them.
    artifacts    text
) WITH (fillfactor = 85);

CREATE INDEX step_cache_by_step ON step_cache (org_id, workflow, step_id, key, run_id);
-- What goes with its run.
CREATE INDEX step_cache_by_run ON step_cache (run_id) WHERE run_id <> '00000000-0000-0000-0000-000000000000';
-- Made last: of indexes that look alike while the table is empty, Postgres takes the newest.
ALTER TABLE step_cache ADD PRIMARY KEY (org_id, key, run_id);

-- What keys are made of, by the key, which is its hash. There is one for each attempt that began, whatever became of it;
-- of several the first, which `run_id` made.
CREATE TABLE cache_preimages (
    org_id     integer NOT NULL,
    key        bytea NOT NULL,
    run_id     uuid NOT NULL,
    created_at bigint NOT NULL,
    workflow   text COLLATE "C" NOT NULL,
    step_id    text COLLATE "C" NOT NULL,
    preimage   text NOT NULL,
    PRIMARY KEY (org_id, key)
);

CREATE INDEX cache_preimages_by_age ON cache_preimages (created_at);
-- What a step began with lately.
CREATE INDEX cache_preimages_by_step ON cache_preimages (org_id, workflow, step_id, created_at);

-- What is counted of each step beside its results: attempts that had to run, and the hits of results that are gone. Each
-- process has a lane of its own to count in, so that no two of them wait for each other.
CREATE TABLE cache_counts (
    org_id   integer NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    step_id  text COLLATE "C" NOT NULL,
    lane     smallint NOT NULL,
    hits     bigint NOT NULL,
    misses   bigint NOT NULL,
    saved_ms bigint NOT NULL,
    PRIMARY KEY (org_id, workflow, step_id, lane)
) WITH (fillfactor = 50);

-- How often the results of a workflow (its `step_id` is empty) or of a step were disowned.
CREATE TABLE cache_epochs (
    org_id   integer NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    step_id  text COLLATE "C" NOT NULL,
    epoch    bigint NOT NULL,
    PRIMARY KEY (org_id, workflow, step_id)
);

-- Results that are being made, and by which step of which run; `run_id` is as in `step_cache`, `item` is -1 for a whole step.
-- Rows come and go with attempts.
CREATE TABLE cache_flights (
    org_id     integer NOT NULL,
    key        bytea NOT NULL,
    run_id     uuid NOT NULL,
    leader_run uuid NOT NULL,
    step       bigint NOT NULL,
    item       bigint NOT NULL,
    since      bigint NOT NULL,
    PRIMARY KEY (org_id, key, run_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

CREATE INDEX cache_flights_by_leader ON cache_flights (leader_run, step, item);
