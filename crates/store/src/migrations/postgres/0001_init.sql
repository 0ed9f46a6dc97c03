-- Times are microseconds since 1970, ids are UUIDs, digests 32 bytes. Tables that grow with the work carry no foreign keys:
-- their rows are written together and dropped together.
--
-- What grows with the number of runs is partitioned by run_id: UUIDv7 ids are ordered by time, so a month is a range of ids,
-- retention drops partitions, and unique keys stay legal. `ensure_run_partitions` below makes the months.

CREATE TABLE orgs (
    id         integer PRIMARY KEY,
    slug       text NOT NULL UNIQUE,
    name       text NOT NULL,
    created_at bigint NOT NULL
);

INSERT INTO orgs (id, slug, name, created_at) VALUES (1, 'default', 'default', 0);

-- The head of each run. A step changes nothing but `last_seq`, so that column is in no index and the new row version fits
-- on the page of the old one (the partitions leave room).
CREATE TABLE runs (
    org_id           integer NOT NULL,
    priority         integer NOT NULL,
    run_id           uuid NOT NULL,
    last_seq         bigint NOT NULL,
    owner            bigint,
    created_at       bigint NOT NULL,
    started_at       bigint,
    completed_at     bigint,
    status           text NOT NULL,
    workflow         text NOT NULL,
    workflow_version text NOT NULL,
    plan_hash        bytea NOT NULL,
    request_id       text,
    base_run_id      uuid,
    parent_run_id    uuid,
    PRIMARY KEY (run_id, org_id)
) PARTITION BY RANGE (run_id);

CREATE INDEX runs_by_owner ON runs (owner, run_id) WHERE owner IS NOT NULL;

-- Which run was started with a request id. A partitioned table cannot have a unique key without run_id, so this is a table of
-- its own, written with the head.
CREATE TABLE run_requests (
    org_id     integer NOT NULL,
    request_id text NOT NULL,
    run_id     uuid NOT NULL,
    PRIMARY KEY (org_id, request_id)
);

-- The log. Only ever inserted into.
CREATE TABLE run_events (
    org_id              integer NOT NULL,
    format              smallint NOT NULL,
    run_id              uuid NOT NULL,
    run_seq             bigint NOT NULL,
    emitted_at          bigint NOT NULL,
    persisted_at        bigint NOT NULL,
    parent_seq          bigint,
    logical_attempt     integer,
    engine_attempt      integer,
    caused_by_signal_id uuid,
    event_type          text NOT NULL,
    step_id             text,
    idempotency_key     bytea NOT NULL,
    data                text NOT NULL,
    PRIMARY KEY (run_id, run_seq, org_id),
    CONSTRAINT run_events_by_key UNIQUE (run_id, idempotency_key, org_id)
) PARTITION BY RANGE (run_id);

CREATE TABLE run_checkpoints (
    org_id integer NOT NULL,
    format smallint NOT NULL,
    run_id uuid NOT NULL,
    seq    bigint NOT NULL,
    state  bytea NOT NULL,
    PRIMARY KEY (run_id, org_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE timers (
    org_id integer NOT NULL,
    run_id uuid NOT NULL,
    seq    bigint NOT NULL,
    due_at bigint NOT NULL,
    PRIMARY KEY (run_id, seq, org_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX timers_by_due ON timers (due_at, run_id, seq);

CREATE TABLE run_slots (
    org_id     integer NOT NULL,
    run_id     uuid NOT NULL,
    slot_key   text NOT NULL,
    holding    boolean NOT NULL,
    slot_limit bigint,
    priority   integer NOT NULL,
    PRIMARY KEY (run_id, org_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- In the order in which those that wait go on.
CREATE INDEX run_slots_by_key ON run_slots (org_id, slot_key, holding, priority DESC, run_id);

CREATE TABLE nodes (
    node_id          bigint PRIMARY KEY,
    lease_expires_at bigint NOT NULL,
    "left"           boolean NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

CREATE TABLE cas_blobs (
    org_id     integer NOT NULL,
    hash       bytea NOT NULL,
    media_type text NOT NULL,
    format     smallint NOT NULL,
    size       bigint NOT NULL,
    content    bytea NOT NULL,
    PRIMARY KEY (org_id, hash)
);

CREATE FUNCTION refuse_blob_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a blob never changes: its name is the digest of its content' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER cas_blobs_never_change BEFORE UPDATE ON cas_blobs
    FOR EACH ROW EXECUTE FUNCTION refuse_blob_change();

CREATE TABLE tags (
    org_id      integer NOT NULL,
    tag         text NOT NULL,
    target_hash bytea NOT NULL,
    version     bigint NOT NULL,
    moved_at    bigint NOT NULL,
    PRIMARY KEY (org_id, tag)
);

CREATE TABLE run_snapshots (
    org_id           integer NOT NULL,
    priority         integer NOT NULL,
    run_id           uuid NOT NULL,
    last_event_seq   bigint NOT NULL,
    created_at       bigint NOT NULL,
    started_at       bigint,
    completed_at     bigint,
    steps_total      integer NOT NULL,
    steps_done       integer NOT NULL,
    steps_failed     integer NOT NULL,
    base_run_id      uuid,
    parent_run_id    uuid,
    status           text NOT NULL,
    workflow         text NOT NULL,
    workflow_version text NOT NULL,
    request_id       text,
    error            text,
    PRIMARY KEY (org_id, run_id)
) PARTITION BY RANGE (run_id);

CREATE INDEX run_snapshots_by_status ON run_snapshots (org_id, status, run_id);
CREATE INDEX run_snapshots_by_workflow ON run_snapshots (org_id, workflow, run_id);

CREATE TABLE run_steps (
    org_id          integer NOT NULL,
    logical_attempt integer NOT NULL,
    engine_attempt  integer NOT NULL,
    run_id          uuid NOT NULL,
    output_seq      bigint,
    started_at      bigint,
    ended_at        bigint,
    step_id         text NOT NULL,
    skill           text NOT NULL,
    status          text NOT NULL,
    skip_reason     text,
    input_hash      bytea,
    error           text,
    PRIMARY KEY (run_id, step_id, org_id)
) PARTITION BY RANGE (run_id);

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
               WHEN 'RunQueued' THEN coalesce(data::json ->> 'status', 'queued')
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
) AS changes;

-- Storage settings are a partition's own: a partitioned table cannot have them.
CREATE FUNCTION run_partition_settings(parent text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE parent
        -- Rows that change in place and then never again.
        WHEN 'runs' THEN 'fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1'
        WHEN 'run_snapshots' THEN 'fillfactor = 80, autovacuum_vacuum_scale_factor = 0.1'
        WHEN 'run_steps' THEN 'fillfactor = 80, autovacuum_vacuum_scale_factor = 0.1'
        -- Rows that never change.
        ELSE 'fillfactor = 100'
    END
$$;

-- Makes the partitions of the month of `now_us` and of the `ahead` months after it, where they are missing; says how many it
-- made. A month of which rows are already in the default partition is left there: rows are never moved.
CREATE FUNCTION ensure_run_partitions(now_us bigint, ahead integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    month  timestamp;
    child  text;
    made   integer := 0;
    -- A UUIDv7 begins with the milliseconds since 1970, in 48 bits.
    bounds text[];
BEGIN
    FOR n IN 0..ahead LOOP
        month := date_trunc('month', to_timestamp(now_us / 1000000) AT TIME ZONE 'UTC') + make_interval(months => n);
        bounds := ARRAY(
            SELECT rpad(lpad(to_hex((extract(epoch FROM edge) * 1000)::bigint), 12, '0'), 32, '0')
            FROM unnest(ARRAY[month, month + interval '1 month']) WITH ORDINALITY AS edges (edge, place) ORDER BY place
        );
        FOREACH parent IN ARRAY ARRAY['runs', 'run_events', 'run_snapshots', 'run_steps'] LOOP
            child := parent || to_char(month, '"_"YYYY"_"MM');
            CONTINUE WHEN EXISTS (
                SELECT 1 FROM pg_class WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relname = child
            );
            -- Two nodes must not make the same partition; the second finds it made.
            PERFORM pg_advisory_xact_lock(hashtextextended('milepost partitions of ' || current_schema(), 0));
            CONTINUE WHEN EXISTS (
                SELECT 1 FROM pg_class WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relname = child
            );
            BEGIN
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L) WITH (%s)',
                               child, parent, bounds[1]::uuid, bounds[2]::uuid, run_partition_settings(parent));
                made := made + 1;
            EXCEPTION WHEN check_violation THEN
                RAISE NOTICE 'rows of % are in the default partition of % and stay there', month, parent;
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

DO $$
DECLARE
    parent text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['runs', 'run_events', 'run_snapshots', 'run_steps'] LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF %I DEFAULT WITH (%s)',
                       parent || '_default', parent, run_partition_settings(parent));
    END LOOP;
END $$;
