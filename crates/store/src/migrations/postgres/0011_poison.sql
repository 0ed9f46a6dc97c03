-- Runs that may bring a process down when they are loaded or decided.

-- What a node is about to decide, while that is noted; and when a node that died was found dead.
ALTER TABLE nodes ADD COLUMN deciding text, ADD COLUMN crashed_at bigint;

-- Few rows: runs that were noted when a process died. `crashes` counts those of which it is known that it was this run. A run
-- that is stuck has nobody who decides it; `owner` is the node that had it.
CREATE TABLE run_suspects (
    org_id     integer NOT NULL,
    run_id     uuid NOT NULL,
    state      text NOT NULL CHECK (state IN ('suspected', 'stuck', 'ended')),
    crashes    integer NOT NULL,
    deed       text NOT NULL,
    changed_at bigint NOT NULL,
    owner      bigint,
    PRIMARY KEY (run_id, org_id)
);
