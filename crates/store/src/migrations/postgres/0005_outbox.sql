-- What commits ask for beyond the database. A row goes when it is done, so the table is as small as the open work, and dead
-- rows are cleared soon. Ids give no order that anybody relies on: rows are claimed by when they are due. A claim moves
-- `available_at` to its end, so one index finds what waits and what a claim was lost of.
CREATE TABLE outbox (
    id            uuid PRIMARY KEY,
    org_id        integer NOT NULL,
    run_id        uuid NOT NULL,
    available_at  bigint NOT NULL,
    created_at    bigint NOT NULL,
    claimed_by    bigint,
    claimed_until bigint,
    attempts      integer NOT NULL,
    kind          text NOT NULL,
    payload       text NOT NULL,
    status        text NOT NULL CHECK (status IN ('pending', 'processing')),
    last_error    text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);

CREATE INDEX outbox_due ON outbox (available_at);
CREATE INDEX outbox_by_claim ON outbox (claimed_by) WHERE claimed_by IS NOT NULL;

-- What was given up, until somebody has it tried again or it is forgotten.
CREATE TABLE dead_letters (
    id         uuid PRIMARY KEY,
    org_id     integer NOT NULL,
    run_id     uuid NOT NULL,
    created_at bigint NOT NULL,
    died_at    bigint NOT NULL,
    attempts   integer NOT NULL,
    kind       text NOT NULL,
    payload    text NOT NULL,
    last_error text NOT NULL
);
