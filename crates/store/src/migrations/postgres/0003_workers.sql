-- Steps that wait for workers and steps that workers have. A row goes when its step has ended, so the table is as small as
-- the open work, and dead rows are cleared soon. Ids begin as those of their runs do.
CREATE TABLE tasks (
    task_id          uuid PRIMARY KEY,
    org_id           integer NOT NULL,
    run_id           uuid NOT NULL,
    step             bigint NOT NULL,
    item             bigint,
    priority         integer NOT NULL,
    ready_at         bigint NOT NULL,
    node             bigint NOT NULL,
    since            bigint NOT NULL,
    slot_limit       bigint,
    nonce            bigint,
    logical_attempt  integer,
    engine_attempt   integer,
    lease_ms         bigint,
    lease_expires_at bigint,
    step_id          text NOT NULL,
    queue            text NOT NULL,
    skill            text NOT NULL,
    workflow         text NOT NULL,
    slot_key         text,
    worker_id        text,
    progress         text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

-- What waits, by whose it is, in the order in which it goes.
CREATE INDEX tasks_waiting ON tasks (queue, node, org_id, workflow, priority DESC, ready_at) WHERE worker_id IS NULL;
CREATE INDEX tasks_by_node ON tasks (node);
-- Who is under way with a concurrency key.
CREATE INDEX tasks_by_slot ON tasks (org_id, slot_key) WHERE slot_key IS NOT NULL AND worker_id IS NOT NULL;

-- What a queue may do at most. `taken_until` is up to where the rate is used up.
CREATE TABLE queues (
    org_id      integer NOT NULL,
    queue       text NOT NULL,
    concurrency bigint,
    rate        bigint,
    per_ms      bigint,
    taken_until bigint NOT NULL,
    PRIMARY KEY (org_id, queue)
);
