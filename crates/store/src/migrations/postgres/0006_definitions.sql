-- Definitions are versioned: revisions have parents, tags have a history, content may be in the blob store.

-- Content above a limit is in the blob store, under `blob`; then it is empty here.
ALTER TABLE cas_blobs ADD COLUMN blob text;
ALTER TABLE cas_blobs ADD COLUMN created_at bigint NOT NULL DEFAULT 0;

-- Keys of the blob store that a row of `cas_blobs` is about to name, or named once. What is here and is named by no row is
-- removed after a while.
CREATE TABLE cas_notes (
    blob     text PRIMARY KEY,
    noted_at bigint NOT NULL
);

ALTER TABLE revisions RENAME TO revisions_before;
ALTER TABLE revisions_before RENAME CONSTRAINT revisions_pkey TO revisions_before_pkey;
ALTER TABLE tags RENAME TO tags_before;
ALTER TABLE tags_before RENAME CONSTRAINT tags_pkey TO tags_before_pkey;
DROP INDEX tags_in_order;

-- Append only. `version_hash` is the digest of the document that a revision means, `cas_hash` of what is stored of it: the
-- document, or the operations of a patch. `base_version` is the document that a chain of patches begins with.
CREATE TABLE revisions (
    org_id          integer NOT NULL,
    revision_id     uuid NOT NULL,
    kind            text NOT NULL CHECK (kind IN ('dag_version', 'patch_set', 'run_snapshot')),
    cas_hash        bytea NOT NULL,
    version_hash    bytea NOT NULL,
    plan_hash       bytea,
    base_version    uuid,
    parent_id       uuid,
    merge_parent_id uuid,
    depth           integer NOT NULL,
    message         text,
    created_by      text,
    created_at      bigint NOT NULL
);

-- One document, one version; one plan, one snapshot.
CREATE UNIQUE INDEX revisions_by_document ON revisions (org_id, version_hash) WHERE kind = 'dag_version';
CREATE UNIQUE INDEX revisions_by_plan ON revisions (org_id, plan_hash) WHERE kind = 'run_snapshot';
CREATE INDEX revisions_by_hash ON revisions (org_id, version_hash, revision_id);
CREATE INDEX revisions_by_content ON revisions (org_id, cas_hash);
CREATE INDEX revisions_by_base ON revisions (org_id, base_version) WHERE base_version IS NOT NULL;
CREATE INDEX revisions_by_parent ON revisions (org_id, parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX revisions_by_merge_parent ON revisions (org_id, merge_parent_id) WHERE merge_parent_id IS NOT NULL;

CREATE FUNCTION refuse_revisions_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a revision never changes: make another one' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER revisions_never_change BEFORE UPDATE ON revisions
    FOR EACH ROW EXECUTE FUNCTION refuse_revisions_change();

-- The patches of a chain in the order they are applied, for each head: materialising needs no walk.
CREATE TABLE patch_chain_members (
    org_id    integer NOT NULL,
    head_id   uuid NOT NULL,
    seq       integer NOT NULL,
    member_id uuid NOT NULL
);

CREATE INDEX patch_chain_members_by_member ON patch_chain_members (org_id, member_id);

-- Where names point now. `at_move` is the move whose result that is, `redo_move` the undo that a redo takes back.
CREATE TABLE tags (
    org_id      integer NOT NULL,
    tag         text COLLATE "C" NOT NULL,
    target_kind text NOT NULL,
    target_id   uuid NOT NULL,
    target_hash bytea NOT NULL,
    version     bigint NOT NULL,
    at_move     bigint NOT NULL,
    redo_move   bigint,
    moved_by    text,
    moved_at    bigint NOT NULL,
    message     text,
    protection  text
);

CREATE INDEX tags_by_target ON tags (org_id, target_id);

-- Where they have been: one row for each move, never changed. `move_id` is the tag's version that the move made.
-- `before_move` is what an undo of it goes back to; of an undo, `undone_move` is what it took back, and `below_move` the
-- undo that a redo takes back after it.
CREATE TABLE tag_moves (
    org_id             integer NOT NULL,
    tag                text COLLATE "C" NOT NULL,
    move_id            bigint NOT NULL,
    kind               text NOT NULL CHECK (kind IN ('move', 'undo', 'redo', 'restore', 'merge')),
    from_revision_id   uuid,
    to_kind            text NOT NULL,
    to_revision_id     uuid NOT NULL,
    to_version_hash    bytea NOT NULL,
    restores_move_id   bigint,
    before_move        bigint,
    undone_move        bigint,
    below_move         bigint,
    merged_revision_id uuid,
    moved_by           text,
    moved_at           bigint NOT NULL,
    message            text
);

CREATE INDEX tag_moves_by_time ON tag_moves (org_id, tag, moved_at);
CREATE INDEX tag_moves_by_from ON tag_moves (org_id, from_revision_id);
CREATE INDEX tag_moves_by_to ON tag_moves (org_id, to_revision_id);
CREATE INDEX tag_moves_by_merged ON tag_moves (org_id, merged_revision_id) WHERE merged_revision_id IS NOT NULL;

CREATE FUNCTION refuse_tag_moves_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a move never changes: it is history' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER tag_moves_never_change BEFORE UPDATE ON tag_moves
    FOR EACH ROW EXECUTE FUNCTION refuse_tag_moves_change();

-- Requests with an idempotency key, and what they were answered; written with what they did.
CREATE TABLE definition_requests (
    org_id      integer NOT NULL,
    request_key text NOT NULL,
    fingerprint bytea NOT NULL,
    answer      text NOT NULL,
    created_at  bigint NOT NULL,
    PRIMARY KEY (org_id, request_key)
);

CREATE INDEX definition_requests_by_age ON definition_requests (created_at);

-- When a snapshot was last about to be run, give or take an hour; and plans of runs whose definition was changed on the way.
CREATE TABLE plan_uses (
    org_id      integer NOT NULL,
    revision_id uuid NOT NULL,
    used_at     bigint NOT NULL,
    PRIMARY KEY (org_id, revision_id)
);

CREATE TABLE run_plans (
    org_id    integer NOT NULL,
    run_id    uuid NOT NULL,
    plan_hash bytea NOT NULL,
    PRIMARY KEY (org_id, run_id, plan_hash)
);

-- Primary keys are made last, as before: plans are made once, perhaps while a table is empty; then every index that begins
-- alike looks as good as any other, and the planner takes the newest.
ALTER TABLE revisions ADD PRIMARY KEY (org_id, revision_id);
ALTER TABLE patch_chain_members ADD PRIMARY KEY (org_id, head_id, seq);
ALTER TABLE tags ADD PRIMARY KEY (org_id, tag);
ALTER TABLE tag_moves ADD PRIMARY KEY (org_id, tag, move_id);

ALTER TABLE revisions ADD FOREIGN KEY (org_id, cas_hash) REFERENCES cas_blobs (org_id, hash);
ALTER TABLE revisions ADD FOREIGN KEY (org_id, base_version) REFERENCES revisions (org_id, revision_id);
ALTER TABLE revisions ADD FOREIGN KEY (org_id, parent_id) REFERENCES revisions (org_id, revision_id);
ALTER TABLE revisions ADD FOREIGN KEY (org_id, merge_parent_id) REFERENCES revisions (org_id, revision_id);
ALTER TABLE patch_chain_members ADD FOREIGN KEY (org_id, head_id) REFERENCES revisions (org_id, revision_id) ON DELETE CASCADE;
ALTER TABLE patch_chain_members ADD FOREIGN KEY (org_id, member_id) REFERENCES revisions (org_id, revision_id);
ALTER TABLE tags ADD FOREIGN KEY (org_id, target_id) REFERENCES revisions (org_id, revision_id);
ALTER TABLE tag_moves ADD FOREIGN KEY (org_id, from_revision_id) REFERENCES revisions (org_id, revision_id);
ALTER TABLE tag_moves ADD FOREIGN KEY (org_id, to_revision_id) REFERENCES revisions (org_id, revision_id);
ALTER TABLE tag_moves ADD FOREIGN KEY (org_id, merged_revision_id) REFERENCES revisions (org_id, revision_id);
ALTER TABLE plan_uses ADD FOREIGN KEY (org_id, revision_id) REFERENCES revisions (org_id, revision_id);

-- What was there.
INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, depth, created_at)
SELECT r.org_id, r.revision_id, 'dag_version', r.version_hash, r.version_hash, 0, r.created_at
FROM revisions_before AS r JOIN cas_blobs AS b ON b.org_id = r.org_id AND b.hash = r.version_hash;

INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, depth, created_at)
SELECT t.org_id, gen_random_uuid(), 'dag_version', t.target_hash, t.target_hash, 0, min(t.moved_at)
FROM tags_before AS t JOIN cas_blobs AS b ON b.org_id = t.org_id AND b.hash = t.target_hash
WHERE NOT EXISTS (SELECT FROM revisions AS r WHERE r.org_id = t.org_id AND r.version_hash = t.target_hash)
GROUP BY t.org_id, t.target_hash;

INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, plan_hash, depth, created_at)
SELECT r.org_id, gen_random_uuid(), 'run_snapshot', r.plan_hash, r.plan_hash, r.plan_hash, 0, min(r.created_at)
FROM runs AS r JOIN cas_blobs AS b ON b.org_id = r.org_id AND b.hash = r.plan_hash
GROUP BY r.org_id, r.plan_hash;

INSERT INTO tags (org_id, tag, target_kind, target_id, target_hash, version, at_move, moved_at)
SELECT t.org_id, t.tag, 'dag_version', r.revision_id, t.target_hash, t.version, t.version, t.moved_at
FROM tags_before AS t
JOIN revisions AS r ON r.org_id = t.org_id AND r.version_hash = t.target_hash AND r.kind = 'dag_version';

INSERT INTO tag_moves (org_id, tag, move_id, kind, to_kind, to_revision_id, to_version_hash, moved_at)
SELECT org_id, tag, version, 'move', target_kind, target_id, target_hash, moved_at FROM tags;

DROP TABLE tags_before;
DROP TABLE revisions_before;
