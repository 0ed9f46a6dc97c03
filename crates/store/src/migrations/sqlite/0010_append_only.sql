-- What is history is only added to. An event goes when its run is forgotten, which takes the head of the run first; a
-- revision goes when nothing leads to it. Inserts pay nothing for this.

CREATE TRIGGER run_events_never_change BEFORE UPDATE ON run_events
BEGIN
    SELECT RAISE(ABORT, 'an event never changes: it is history');
END;

CREATE TRIGGER run_events_stay BEFORE DELETE ON run_events
WHEN EXISTS (SELECT 1 FROM runs AS r WHERE r.org_id = OLD.org_id AND r.run_id = OLD.run_id)
BEGIN
    SELECT RAISE(ABORT, 'an event is kept as long as its run: it is history');
END;

CREATE TRIGGER tag_moves_stay BEFORE DELETE ON tag_moves
BEGIN
    SELECT RAISE(ABORT, 'a move is kept for ever: it is history');
END;

CREATE TRIGGER revisions_stay BEFORE DELETE ON revisions
WHEN EXISTS (SELECT 1 FROM tags AS t WHERE t.org_id = OLD.org_id AND t.target_id = OLD.revision_id)
    OR EXISTS (SELECT 1 FROM tag_moves AS m WHERE m.org_id = OLD.org_id AND m.to_revision_id = OLD.revision_id)
BEGIN
    SELECT RAISE(ABORT, 'a revision is kept as long as a tag or its history leads to it');
END;

CREATE TRIGGER patch_chain_members_never_change BEFORE UPDATE ON patch_chain_members
BEGIN
    SELECT RAISE(ABORT, 'a chain of patches never changes: it is made of parents');
END;
