-- Moves say what kind of revision they left, and which document their author expected there; revisions have the name of what
-- they mean, and what their author noted beside it.

ALTER TABLE tag_moves ADD COLUMN from_kind text;
ALTER TABLE tag_moves ADD COLUMN expected_hash bytea;
ALTER TABLE revisions ADD COLUMN name text;
ALTER TABLE revisions ADD COLUMN meta text;

-- Moves that were made before: a column that is new is filled in, nothing else of them changes.
ALTER TABLE tag_moves DISABLE TRIGGER tag_moves_never_change;
UPDATE tag_moves AS m SET from_kind = r.kind FROM revisions AS r
WHERE r.org_id = m.org_id AND r.revision_id = m.from_revision_id;
ALTER TABLE tag_moves ENABLE TRIGGER tag_moves_never_change;

-- Runs whose log has a gap, and the number that is missing first. What is shown of them is as old as that.
CREATE TABLE stale_runs (
    org_id   integer NOT NULL,
    run_id   uuid NOT NULL,
    from_seq bigint NOT NULL,
    PRIMARY KEY (org_id, run_id)
);
