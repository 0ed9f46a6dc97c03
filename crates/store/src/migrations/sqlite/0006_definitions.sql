-- Definitions are versioned: revisions have parents, tags have a history, content may be in the blob store.

-- Content above a limit is in the blob store, under `blob`; then it is empty here.
ALTER TABLE cas_blobs ADD COLUMN blob TEXT;
ALTER TABLE cas_blobs ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;

-- Keys of the blob store that a row of `cas_blobs` is about to name, or named once. What is here and is named by no row is
-- removed after a while.
CREATE TABLE cas_notes (
    blob     TEXT PRIMARY KEY,
    noted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE revisions RENAME TO revisions_before;
ALTER TABLE tags RENAME TO tags_before;

-- Append only. `version_hash` is the digest of the document that a revision means, `cas_hash` of what is stored of it: the
-- document, or the operations of a patch. `base_version` is the document that a chain of patches begins with.
CREATE TABLE revisions (
    org_id          INTEGER NOT NULL,
    revision_id     BLOB NOT NULL CHECK (length(revision_id) = 16),
    kind            TEXT NOT NULL CHECK (kind IN ('dag_version', 'patch_set', 'run_snapshot')),
    cas_hash        BLOB NOT NULL,
    version_hash    BLOB NOT NULL,
    plan_hash       BLOB,
    base_version    BLOB,
    parent_id       BLOB,
    merge_parent_id BLOB,
    depth           INTEGER NOT NULL,
    message         TEXT,
    created_by      TEXT,
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (org_id, revision_id),
    FOREIGN KEY (org_id, cas_hash) REFERENCES cas_blobs (org_id, hash),
    FOREIGN KEY (org_id, base_version) REFERENCES revisions (org_id, revision_id),
    FOREIGN KEY (org_id, parent_id) REFERENCES revisions (org_id, revision_id),
    FOREIGN KEY (org_id, merge_parent_id) REFERENCES revisions (org_id, revision_id)
) STRICT, WITHOUT ROWID;

-- One document, one version; one plan, one snapshot.
CREATE UNIQUE INDEX revisions_by_document ON revisions (org_id, version_hash) WHERE kind = 'dag_version';
CREATE UNIQUE INDEX revisions_by_plan ON revisions (org_id, plan_hash) WHERE kind = 'run_snapshot';
CREATE INDEX revisions_by_hash ON revisions (org_id, version_hash, revision_id);
CREATE INDEX revisions_by_content ON revisions (org_id, cas_hash);
CREATE INDEX revisions_by_base ON revisions (org_id, base_version) WHERE base_version IS NOT NULL;
CREATE INDEX revisions_by_parent ON revisions (org_id, parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX revisions_by_merge_parent ON revisions (org_id, merge_parent_id) WHERE merge_parent_id IS NOT NULL;

CREATE TRIGGER revisions_never_change BEFORE UPDATE ON revisions
BEGIN
    SELECT RAISE(ABORT, 'a revision never changes: make another one');
END;

-- The patches of a chain in the order they are applied, for each head: materialising needs no walk.
CREATE TABLE patch_chain_members (
    org_id    INTEGER NOT NULL,
    head_id   BLOB NOT NULL,
    seq       INTEGER NOT NULL,
    member_id BLOB NOT NULL,
    PRIMARY KEY (org_id, head_id, seq),
    FOREIGN KEY (org_id, head_id) REFERENCES revisions (org_id, revision_id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, member_id) REFERENCES revisions (org_id, revision_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX patch_chain_members_by_member ON patch_chain_members (org_id, member_id);

-- Where names point now. `at_move` is the move whose result that is, `redo_move` the undo that a redo takes back.
CREATE TABLE tags (
    org_id      INTEGER NOT NULL,
    tag         TEXT NOT NULL,
    target_kind TEXT NOT NULL,
    target_id   BLOB NOT NULL,
    target_hash BLOB NOT NULL,
    version     INTEGER NOT NULL,
    at_move     INTEGER NOT NULL,
    redo_move   INTEGER,
    moved_by    TEXT,
    moved_at    INTEGER NOT NULL,
    message     TEXT,
    protection  TEXT,
    PRIMARY KEY (org_id, tag),
    FOREIGN KEY (org_id, target_id) REFERENCES revisions (org_id, revision_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_target ON tags (org_id, target_id);

-- Where they have been: one row for each move, never changed. `move_id` is the tag's version that the move made.
-- `before_move` is what an undo of it goes back to; of an undo, `undone_move` is what it took back, and `below_move` the
-- undo that a redo takes back after it.
CREATE TABLE tag_moves (
    org_id             INTEGER NOT NULL,
    tag                TEXT NOT NULL,
    move_id            INTEGER NOT NULL,
    kind               TEXT NOT NULL CHECK (kind IN ('move', 'undo', 'redo', 'restore', 'merge')),
    from_revision_id   BLOB,
    to_kind            TEXT NOT NULL,
    to_revision_id     BLOB NOT NULL,
    to_version_hash    BLOB NOT NULL,
    restores_move_id   INTEGER,
    before_move        INTEGER,
    undone_move        INTEGER,
    below_move         INTEGER,
    merged_revision_id BLOB,
    moved_by           TEXT,
    moved_at           INTEGER NOT NULL,
    message            TEXT,
    PRIMARY KEY (org_id, tag, move_id),
    FOREIGN KEY (org_id, from_revision_id) REFERENCES revisions (org_id, revision_id),
    FOREIGN KEY (org_id, to_revision_id) REFERENCES revisions (org_id, revision_id),
    FOREIGN KEY (org_id, merged_revision_id) REFERENCES revisions (org_id, revision_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX tag_moves_by_time ON tag_moves (org_id, tag, moved_at);
CREATE INDEX tag_moves_by_from ON tag_moves (org_id, from_revision_id);
CREATE INDEX tag_moves_by_to ON tag_moves (org_id, to_revision_id);
CREATE INDEX tag_moves_by_merged ON tag_moves (org_id, merged_revision_id) WHERE merged_revision_id IS NOT NULL;

CREATE TRIGGER tag_moves_never_change BEFORE UPDATE ON tag_moves
BEGIN
    SELECT RAISE(ABORT, 'a move never changes: it is history');
END;

-- Requests with an idempotency key, and what they were answered; written with what they did.
CREATE TABLE definition_requests (
    org_id      INTEGER NOT NULL,
    request_key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    answer      TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (org_id, request_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX definition_requests_by_age ON definition_requests (created_at);

-- When a snapshot was last about to be run, give or take an hour; and plans of runs whose definition was changed on the way.
CREATE TABLE plan_uses (
    org_id      INTEGER NOT NULL,
    revision_id BLOB NOT NULL,
    used_at     INTEGER NOT NULL,
    PRIMARY KEY (org_id, revision_id),
    FOREIGN KEY (org_id, revision_id) REFERENCES revisions (org_id, revision_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_plans (
    org_id    INTEGER NOT NULL,
    run_id    BLOB NOT NULL,
    plan_hash BLOB NOT NULL,
    PRIMARY KEY (org_id, run_id, plan_hash)
) STRICT, WITHOUT ROWID;

-- What was there.
INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, depth, created_at)
SELECT r.org_id, r.revision_id, 'dag_version', r.version_hash, r.version_hash, 0, r.created_at
FROM revisions_before AS r JOIN cas_blobs AS b ON b.org_id = r.org_id AND b.hash = r.version_hash;

INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, depth, created_at)
SELECT t.org_id, randomblob(16), 'dag_version', t.target_hash, t.target_hash, 0, min(t.moved_at)
FROM tags_before AS t JOIN cas_blobs AS b ON b.org_id = t.org_id AND b.hash = t.target_hash
WHERE NOT EXISTS (SELECT 1 FROM revisions AS r WHERE r.org_id = t.org_id AND r.version_hash = t.target_hash)
GROUP BY t.org_id, t.target_hash;

INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, plan_hash, depth, created_at)
SELECT r.org_id, randomblob(16), 'run_snapshot', r.plan_hash, r.plan_hash, r.plan_hash, 0, min(r.created_at)
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
