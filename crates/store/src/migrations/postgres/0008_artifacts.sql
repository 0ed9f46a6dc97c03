-- What runs leave: files, and where their content is.

-- Content in the blob store, by org and hash. A key of the blob store is used once. `used_at` is when somebody last uploaded
-- or was about to name it, give or take a few minutes: what nobody names goes a while after that.
CREATE TABLE artifact_blobs (
    org_id     integer NOT NULL,
    sha256     bytea NOT NULL,
    blob       text NOT NULL UNIQUE,
    size_bytes bigint NOT NULL,
    used_at    bigint NOT NULL,
    PRIMARY KEY (org_id, sha256)
);

-- Keys that a row of `artifact_blobs` is about to name, or named once. They go, with what is there, after a while.
CREATE TABLE blob_notes (
    blob     text PRIMARY KEY,
    noted_at bigint NOT NULL
);

-- Results of steps that name content; one that was replaced or is gone may still be here (see its `artifacts`).
CREATE TABLE cache_blobs (
    org_id integer NOT NULL,
    sha256 bytea NOT NULL,
    key    bytea NOT NULL,
    run_id uuid NOT NULL,
    PRIMARY KEY (org_id, sha256, key, run_id)
);

-- Of each event that records artifacts (`seq`), those that it records (`place`). The event is the truth.
CREATE TABLE artifacts (
    org_id        integer NOT NULL,
    run_id        uuid NOT NULL,
    seq           bigint NOT NULL,
    place         integer NOT NULL,
    artifact_id   uuid NOT NULL,
    step_id       text COLLATE "C",
    skill         text,
    kind          text COLLATE "C" NOT NULL,
    uri           text NOT NULL,
    sha256        bytea,
    size_bytes    bigint,
    media_type    text,
    filename      text,
    training_step bigint,
    metadata      text NOT NULL,
    created_at    bigint NOT NULL,
    expires_at    bigint
);

CREATE UNIQUE INDEX artifacts_by_id ON artifacts (org_id, run_id, artifact_id);
CREATE UNIQUE INDEX artifacts_by_training_step ON artifacts (org_id, run_id, kind, training_step)
    WHERE training_step IS NOT NULL;
CREATE INDEX artifacts_by_kind ON artifacts (org_id, run_id, kind, seq, place);
CREATE INDEX artifacts_by_step ON artifacts (org_id, run_id, step_id, seq, place) WHERE step_id IS NOT NULL;
CREATE INDEX artifacts_by_expiry ON artifacts (expires_at) WHERE expires_at IS NOT NULL;
-- Of indexes that look alike while the table is empty, Postgres takes the newest. What is looked for by its content is found
-- by that, and nothing else can be.
ALTER TABLE artifacts ADD PRIMARY KEY (org_id, run_id, seq, place);
CREATE INDEX artifacts_by_content ON artifacts (sha256, org_id) WHERE sha256 IS NOT NULL;
