-- What a server needs: lists by every filter, revisions, logs of steps, and runs that are forgotten after a while.

-- Each list of runs is one range per status, newest first.
DROP INDEX run_snapshots_by_workflow;
CREATE INDEX run_snapshots_by_workflow ON run_snapshots (org_id, workflow, status, run_id);
CREATE INDEX run_snapshots_by_base ON run_snapshots (org_id, base_run_id, status, run_id) WHERE base_run_id IS NOT NULL;
CREATE INDEX run_snapshots_by_parent ON run_snapshots (org_id, parent_run_id, status, run_id)
    WHERE parent_run_id IS NOT NULL;

-- Which runs ended long ago. On the projection and not on the head: one more entry for each run that ends, and none of
-- it while a commit is waited for.
CREATE INDEX run_snapshots_by_end ON run_snapshots (completed_at) WHERE completed_at IS NOT NULL;

-- Who builds upon a run: it is kept as long as they are.
CREATE INDEX runs_by_base ON runs (base_run_id) WHERE base_run_id IS NOT NULL;

-- A document under an id of its own. One content, one revision.
CREATE TABLE revisions (
    org_id       INTEGER NOT NULL,
    revision_id  BLOB NOT NULL CHECK (length(revision_id) = 16),
    kind         TEXT NOT NULL CHECK (kind IN ('dag_version')),
    version_hash BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (org_id, revision_id),
    UNIQUE (org_id, version_hash)
) STRICT, WITHOUT ROWID;

-- What steps wrote, some lines in each row. In the order of writing, like the log.
CREATE TABLE step_logs (
    org_id          INTEGER NOT NULL,
    run_id          BLOB NOT NULL,
    step_id         TEXT NOT NULL,
    logical_attempt INTEGER NOT NULL,
    engine_attempt  INTEGER NOT NULL,
    first_line      INTEGER NOT NULL,
    lines           INTEGER NOT NULL,
    content         BLOB NOT NULL,
    PRIMARY KEY (org_id, run_id, step_id, logical_attempt, engine_attempt, first_line)
) STRICT;

-- Runs whose head is gone and whose events, steps and logs go next, a few at a time.
CREATE TABLE forgotten_runs (
    org_id INTEGER NOT NULL,
    run_id BLOB NOT NULL,
    PRIMARY KEY (org_id, run_id)
) STRICT, WITHOUT ROWID;
