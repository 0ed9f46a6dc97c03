-- Moves say what kind of revision they left, and which document their author expected there; revisions have the name of what
-- they mean, and what their author noted beside it.

ALTER TABLE tag_moves ADD COLUMN from_kind TEXT;
ALTER TABLE tag_moves ADD COLUMN expected_hash BLOB;
ALTER TABLE revisions ADD COLUMN name TEXT;
ALTER TABLE revisions ADD COLUMN meta TEXT;

-- Moves that were made before: a column that is new is filled in, nothing else of them changes.
DROP TRIGGER tag_moves_never_change;
UPDATE tag_moves SET from_kind = (
    SELECT r.kind FROM revisions AS r WHERE r.org_id = tag_moves.org_id AND r.revision_id = tag_moves.from_revision_id
) WHERE from_revision_id IS NOT NULL;
CREATE TRIGGER tag_moves_never_change BEFORE UPDATE ON tag_moves
BEGIN
    SELECT RAISE(ABORT, 'a move never changes: it is history');
END;

-- Runs whose log has a gap, and the number that is missing first. What is shown of them is as old as that.
CREATE TABLE stale_runs (
    org_id   INTEGER NOT NULL,
    run_id   BLOB NOT NULL,
    from_seq INTEGER NOT NULL,
    PRIMARY KEY (org_id, run_id)
) STRICT, WITHOUT ROWID;
