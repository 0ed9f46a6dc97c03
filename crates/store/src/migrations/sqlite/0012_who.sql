-- Who started a run, when something last happened to it, and the node that began it. On the projection: a commit pays nothing
-- for it, and the log has it in any case. Of older runs these are unknown.
ALTER TABLE run_snapshots ADD COLUMN submitted_by TEXT;
ALTER TABLE run_snapshots ADD COLUMN updated_at INTEGER;
ALTER TABLE run_snapshots ADD COLUMN engine_node INTEGER;

-- A list is one range per status, as all are. Runs that nobody known started have no entry.
CREATE INDEX run_snapshots_by_submitter ON run_snapshots (org_id, submitted_by, status, run_id)
    WHERE submitted_by IS NOT NULL;

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
               WHEN 'RunQueued' THEN coalesce(json_extract(e.data, '$.status'), 'queued')
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
               WHEN 'RunQueued' THEN json_extract(e.data, '$.submitted_by')
               WHEN 'RunCancelled' THEN coalesce(json_extract(e.data, '$.actor'), (
                   SELECT json_extract(s.data, '$.actor')
                   FROM run_events AS s
                   WHERE s.org_id = e.org_id AND s.run_id = e.run_id AND s.run_seq < e.run_seq
                       AND s.event_type = 'SignalAccepted' AND json_extract(s.data, '$.type') IN ('CANCEL', 'REJECT')
                   ORDER BY s.run_seq DESC LIMIT 1
               ))
               ELSE json_extract(e.data, '$.actor')
           END AS changed_by,
           e.emitted_at
    FROM run_events AS e
    WHERE e.event_type IN ('RunQueued', 'RunApproved', 'RunStarted', 'RunPaused', 'RunResumed', 'RunCompleted',
                           'RunFailed', 'RunCancelled', 'RunTerminated', 'RunReopened')
);
