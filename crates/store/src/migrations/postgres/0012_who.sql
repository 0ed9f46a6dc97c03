-- Who started a run, when something last happened to it, and the node that began it. On the projection: a commit pays nothing
-- for it, and the log has it in any case. Of older runs these are unknown.
ALTER TABLE run_snapshots ADD COLUMN submitted_by text, ADD COLUMN updated_at bigint, ADD COLUMN engine_node bigint;

-- A list is one range per status, as all are. Runs that nobody known started have no entry, and only statements that say so
-- can use it: the planner does not take it for the primary key.
CREATE INDEX run_snapshots_by_submitter ON run_snapshots (org_id, submitted_by, status, run_id)
    WHERE submitted_by IS NOT NULL;

-- The data of an event as json. Postgres decodes all texts of a json value to read one field, and refuses U+0000 and half
-- surrogate pairs, which the payload beside that field may have. Nothing that is read here is ever written with an escape of
-- that kind, so these go; a backslash that is itself escaped stays.
CREATE FUNCTION event_json(data text) RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(data, '\u') = 0 THEN data
                ELSE regexp_replace(data, '(\\\\)|\\u[0-9a-fA-F]{4}', '\1', 'g') END::json
$$;

-- As before, with who changed it: the event says so, and of a run that was cancelled, and whose steps ended later, the
-- signal that asked for it does.
DROP VIEW run_state_transitions;
CREATE VIEW run_state_transitions AS
SELECT org_id,
       run_id,
       run_seq,
       lag(to_status) OVER (PARTITION BY org_id, run_id ORDER BY run_seq) AS from_status,
       to_status,
       caused_by_signal_id,
       changed_by,
       emitted_at
FROM (
    SELECT e.org_id,
           e.run_id,
           e.run_seq,
           CASE e.event_type
               WHEN 'RunQueued' THEN coalesce(event_json(e.data) ->> 'status', 'queued')
               WHEN 'RunApproved' THEN 'approved'
               WHEN 'RunPaused' THEN 'paused'
               WHEN 'RunCompleted' THEN 'completed'
               WHEN 'RunFailed' THEN 'failed'
               WHEN 'RunCancelled' THEN 'cancelled'
               WHEN 'RunTerminated' THEN 'terminated'
               ELSE 'running'
           END AS to_status,
           e.caused_by_signal_id,
           CASE e.event_type
               WHEN 'RunQueued' THEN event_json(e.data) ->> 'submitted_by'
               WHEN 'RunCancelled' THEN coalesce(event_json(e.data) ->> 'actor', (
                   SELECT event_json(s.data) ->> 'actor'
                   FROM run_events AS s
                   WHERE s.org_id = e.org_id AND s.run_id = e.run_id AND s.run_seq < e.run_seq
                       AND s.event_type = 'SignalAccepted' AND event_json(s.data) ->> 'type' IN ('CANCEL', 'REJECT')
                   ORDER BY s.run_seq DESC LIMIT 1
               ))
               ELSE event_json(e.data) ->> 'actor'
           END AS changed_by,
           e.emitted_at
    FROM run_events AS e
    WHERE e.event_type IN ('RunQueued', 'RunApproved', 'RunStarted', 'RunPaused', 'RunResumed', 'RunCompleted',
                           'RunFailed', 'RunCancelled', 'RunTerminated', 'RunReopened')
) AS changes;
