-- Runs that may bring a process down when they are loaded or decided.

-- What a node is about to decide, while that is noted; and when a node that died was found dead.
ALTER TABLE nodes ADD COLUMN deciding TEXT;
ALTER TABLE nodes ADD COLUMN crashed_at INTEGER;

-- Few rows: runs that were noted when a process died. `crashes` counts those of which it is known that it was this run. A run
-- that is stuck has nobody who decides it; `owner` is the node that had it.
CREATE TABLE run_suspects (
    org_id     INTEGER NOT NULL,
    run_id     BLOB NOT NULL CHECK (length(run_id) = 16),
    state      TEXT NOT NULL CHECK (state IN ('suspected', 'stuck', 'ended')),
    crashes    INTEGER NOT NULL,
    deed       TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    owner      INTEGER,
    PRIMARY KEY (org_id, run_id)
) STRICT, WITHOUT ROWID;
