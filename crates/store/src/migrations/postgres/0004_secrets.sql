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
