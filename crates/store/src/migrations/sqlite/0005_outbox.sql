-- What commits ask for beyond the database. A row goes when it is done, so the table is as small as the open work. Ids give
-- no order that anybody relies on: rows are claimed by when they are due. A claim moves `available_at` to its end, so one
-- index finds what waits and what a claim was lost of.
CREATE TABLE outbox (
    id            BLOB PRIMARY KEY CHECK (length(id) = 16),
    org_id        INTEGER NOT NULL,
    run_id        BLOB NOT NULL,
    kind          TEXT NOT NULL,
    payload       TEXT NOT NULL,
    status        TEXT NOT NULL CHECK (status IN ('pending', 'processing')),
    available_at  INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    claimed_by    INTEGER,
    claimed_until INTEGER,
    last_error    TEXT,
    created_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_due ON outbox (available_at);
CREATE INDEX outbox_by_claim ON outbox (claimed_by) WHERE claimed_by IS NOT NULL;

-- What was given up, until somebody has it tried again or it is forgotten.
CREATE TABLE dead_letters (
    id         BLOB PRIMARY KEY CHECK (length(id) = 16),
    org_id     INTEGER NOT NULL,
    run_id     BLOB NOT NULL,
    kind       TEXT NOT NULL,
    payload    TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    last_error TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    died_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
