-- Steps that wait for workers and steps that workers have. A row goes when its step has ended, so the table is as small as
-- the open work. Ids begin as those of their runs do: the tasks of one run lie side by side.
CREATE TABLE tasks (
    task_id         BLOB PRIMARY KEY CHECK (length(task_id) = 16),
    org_id          INTEGER NOT NULL,
    run_id          BLOB NOT NULL,
    step            INTEGER NOT NULL,
    item            INTEGER,
    step_id         TEXT NOT NULL,
    queue           TEXT NOT NULL,
    skill           TEXT NOT NULL,
    workflow        TEXT NOT NULL,
    priority        INTEGER NOT NULL,
    ready_at        INTEGER NOT NULL,
    node            INTEGER NOT NULL,
    since           INTEGER NOT NULL,
    slot_key        TEXT,
    slot_limit      INTEGER,
    worker_id       TEXT,
    nonce           INTEGER,
    logical_attempt INTEGER,
    engine_attempt  INTEGER,
    lease_ms        INTEGER,
    lease_expires_at INTEGER,
    progress        TEXT
) STRICT, WITHOUT ROWID;

-- What waits, by whose it is, in the order in which it goes.
CREATE INDEX tasks_waiting ON tasks (queue, node, org_id, workflow, priority DESC, ready_at) WHERE worker_id IS NULL;
CREATE INDEX tasks_by_node ON tasks (node);
-- Who is under way with a concurrency key.
CREATE INDEX tasks_by_slot ON tasks (org_id, slot_key) WHERE slot_key IS NOT NULL AND worker_id IS NOT NULL;

-- What a queue may do at most. `taken_until` is up to where the rate is used up.
CREATE TABLE queues (
    org_id      INTEGER NOT NULL,
    queue       TEXT NOT NULL,
    concurrency INTEGER,
    rate        INTEGER,
    per_ms      INTEGER,
    taken_until INTEGER NOT NULL,
    PRIMARY KEY (org_id, queue)
) STRICT, WITHOUT ROWID;
