-- What a server needs: lists by every filter, revisions, logs of steps, and runs that are forgotten after a while.

-- Each list of runs is one range per status, newest first. The condition of the index by status is true of every row. An
-- index that has one serves only statements that say it too: those for which another index is better do not.
DROP INDEX run_snapshots_by_status, run_snapshots_by_workflow;
CREATE INDEX run_snapshots_by_status ON run_snapshots (org_id, status, run_id) WHERE org_id <> 0;
CREATE INDEX run_snapshots_by_workflow ON run_snapshots (org_id, workflow, status, run_id);
CREATE INDEX run_snapshots_by_base ON run_snapshots (org_id, base_run_id, status, run_id) WHERE base_run_id IS NOT NULL;
CREATE INDEX run_snapshots_by_parent ON run_snapshots (org_id, parent_run_id, status, run_id)
    WHERE parent_run_id IS NOT NULL;

-- Which runs ended long ago. On the projection and not on the head: one more entry for each run that ends, none of it
-- while a commit is waited for, and heads still change in place.
CREATE INDEX run_snapshots_by_end ON run_snapshots (completed_at) WHERE completed_at IS NOT NULL;

-- The primary key is made last. Plans are made once, perhaps while a partition is empty; then every index that begins with
-- org_id looks as good as any other, the planner takes the newest, and would read all runs of an org to find one.
ALTER TABLE run_snapshots DROP CONSTRAINT run_snapshots_pkey;
ALTER TABLE run_snapshots ADD PRIMARY KEY (org_id, run_id);

-- Who builds upon a run: it is kept as long as they are.
CREATE INDEX runs_by_base ON runs (base_run_id) WHERE base_run_id IS NOT NULL;

-- A document under an id of its own. One content, one revision.
CREATE TABLE revisions (
    org_id       integer NOT NULL,
    revision_id  uuid NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('dag_version')),
    version_hash bytea NOT NULL,
    created_at   bigint NOT NULL,
    PRIMARY KEY (org_id, revision_id),
    UNIQUE (org_id, version_hash)
);

-- Tags are listed in the order of their bytes, whatever the order of the database is.
CREATE INDEX tags_in_order ON tags (org_id, tag COLLATE "C");

-- What steps wrote, some lines in each row.
CREATE TABLE step_logs (
    org_id          integer NOT NULL,
    logical_attempt integer NOT NULL,
    engine_attempt  integer NOT NULL,
    run_id          uuid NOT NULL,
    first_line      bigint NOT NULL,
    lines           bigint NOT NULL,
    step_id         text COLLATE "C" NOT NULL,
    content         bytea NOT NULL,
    PRIMARY KEY (run_id, step_id, logical_attempt, engine_attempt, first_line, org_id)
) PARTITION BY RANGE (run_id);

-- Runs whose head is gone and whose events, steps and logs go next: with their month, or a few at a time.
CREATE TABLE forgotten_runs (
    org_id integer NOT NULL,
    run_id uuid NOT NULL,
    PRIMARY KEY (run_id, org_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- The tables that are partitioned by month.
CREATE FUNCTION run_tables() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['runs', 'run_events', 'run_snapshots', 'run_steps', 'step_logs']
$$;

-- The first id of a moment: a UUIDv7 begins with the milliseconds since 1970, in 48 bits.
CREATE FUNCTION first_run_id(moment timestamp) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT rpad(lpad(to_hex(greatest((extract(epoch FROM moment) * 1000)::bigint, 0)), 12, '0'), 32, '0')::uuid
$$;

-- As before, for all of `run_tables()`.
CREATE OR REPLACE FUNCTION ensure_run_partitions(now_us bigint, ahead integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    month  timestamp;
    child  text;
    made   integer := 0;
BEGIN
    FOR n IN 0..ahead LOOP
        month := date_trunc('month', to_timestamp(now_us / 1000000) AT TIME ZONE 'UTC') + make_interval(months => n);
        FOREACH parent IN ARRAY run_tables() LOOP
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
                               child, parent, first_run_id(month), first_run_id(month + interval '1 month'),
                               run_partition_settings(parent));
                made := made + 1;
            EXCEPTION WHEN check_violation THEN
                RAISE NOTICE 'rows of % are in the default partition of % and stay there', month, parent;
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

-- Drops all partitions of a month ('2026_11') if no run of it has a head any more; says how many there were. Takes the
-- tables in one order, for itself: until the caller's transaction ends, everybody else waits.
CREATE FUNCTION drop_run_month(suffix text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    parent  text;
    month   timestamp := to_date(suffix, 'YYYY_MM');
    dropped integer := 0;
BEGIN
    FOREACH parent IN ARRAY run_tables() LOOP
        EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', parent);
    END LOOP;
    IF EXISTS (
        SELECT FROM runs WHERE run_id >= first_run_id(month) AND run_id < first_run_id(month + interval '1 month')
    ) THEN
        RETURN 0;
    END IF;
    FOREACH parent IN ARRAY run_tables() LOOP
        CONTINUE WHEN to_regclass(quote_ident(parent || '_' || suffix)) IS NULL;
        EXECUTE format('DROP TABLE %I', parent || '_' || suffix);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- Logs of steps get the partitions that heads have.
DO $$
DECLARE
    months record;
BEGIN
    FOR months IN
        SELECT c.relname::text AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = 'runs'::regclass
    LOOP
        EXECUTE format('CREATE TABLE %I PARTITION OF step_logs %s WITH (%s)',
                       regexp_replace(months.name, '^runs', 'step_logs'), months.bounds,
                       run_partition_settings('step_logs'));
    END LOOP;
END $$;
