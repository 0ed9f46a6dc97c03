-- What is history is only added to. An event goes when its run is forgotten, which takes the head of the run first, or with
-- its month; a revision goes when nothing leads to it. Inserts pay nothing for this. Months to come have the triggers of
-- the table that they are part of.

CREATE FUNCTION refuse_run_events_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an event never changes: it is history' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER run_events_never_change BEFORE UPDATE ON run_events
    FOR EACH ROW EXECUTE FUNCTION refuse_run_events_change();

CREATE FUNCTION keep_run_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM runs AS r WHERE r.run_id = OLD.run_id AND r.org_id = OLD.org_id) THEN
        RAISE EXCEPTION 'an event is kept as long as its run: it is history' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER run_events_stay BEFORE DELETE ON run_events
    FOR EACH ROW EXECUTE FUNCTION keep_run_events();

CREATE FUNCTION keep_tag_moves() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a move is kept for ever: it is history' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER tag_moves_stay BEFORE DELETE ON tag_moves
    FOR EACH ROW EXECUTE FUNCTION keep_tag_moves();

CREATE TRIGGER tag_moves_stay_whole BEFORE TRUNCATE ON tag_moves
    FOR EACH STATEMENT EXECUTE FUNCTION keep_tag_moves();

CREATE TRIGGER run_events_stay_whole BEFORE TRUNCATE ON run_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_run_events_change();

CREATE FUNCTION keep_revisions() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM tags AS t WHERE t.org_id = OLD.org_id AND t.target_id = OLD.revision_id)
        OR EXISTS (SELECT FROM tag_moves AS m WHERE m.org_id = OLD.org_id AND m.to_revision_id = OLD.revision_id)
    THEN
        RAISE EXCEPTION 'a revision is kept as long as a tag or its history leads to it'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER revisions_stay BEFORE DELETE ON revisions
    FOR EACH ROW EXECUTE FUNCTION keep_revisions();

CREATE FUNCTION refuse_patch_chain_members_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a chain of patches never changes: it is made of parents' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER patch_chain_members_never_change BEFORE UPDATE ON patch_chain_members
    FOR EACH ROW EXECUTE FUNCTION refuse_patch_chain_members_change();
