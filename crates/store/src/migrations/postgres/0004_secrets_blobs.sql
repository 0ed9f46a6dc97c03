-- Secrets, sealed, and what is kept outside of the database.

-- A secret's name, and who may have it (any if there is none). Stays when its versions are removed, so that no number is
-- used twice.
CREATE TABLE secrets (
    org_id       integer NOT NULL,
    last_version integer NOT NULL,
    name         text COLLATE "C" NOT NULL,
    queues       text[] NOT NULL,
    workflows    text[] NOT NULL,
    PRIMARY KEY (org_id, name)
);

-- What is sealed is bound to its org, name and version.
CREATE TABLE secret_versions (
    org_id     integer NOT NULL,
    version    integer NOT NULL,
    created_at bigint NOT NULL,
    name       text COLLATE "C" NOT NULL,
    key_id     text NOT NULL,
    nonce      bytea NOT NULL,
    ciphertext bytea NOT NULL,
    PRIMARY KEY (org_id, name, version)
);

-- Chunks of logs that are too large for a row: their key in the blob store. Their content is empty here.
ALTER TABLE step_logs ADD COLUMN blob text;

-- Runs that may have something in the blob store; written before anything is put there. Those whose head is gone have it
-- removed, then their row here. Not partitioned: it outlives the months of its runs.
CREATE TABLE run_blobs (
    org_id integer NOT NULL,
    gone   boolean NOT NULL,
    run_id uuid NOT NULL,
    PRIMARY KEY (run_id, org_id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE INDEX run_blobs_gone ON run_blobs (run_id, org_id) WHERE gone;
