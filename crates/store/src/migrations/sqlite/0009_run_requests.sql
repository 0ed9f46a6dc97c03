-- A request id is unique within its org, project, environment and workflow: the same id for another workflow is another
-- request. Projects and environments have the number 1 until there are more of them.

-- `version_hash` and `asked` are what a request that comes again is compared with (rows from before this step have none);
-- `plan_version` and `idempotency_key` say which version the request was for. None of them is part of what is unique: a
-- request that is sent again after its tag has moved is the same request.
CREATE TABLE run_requests (
    org_id          INTEGER NOT NULL,
    project_id      INTEGER NOT NULL DEFAULT 1,
    environment_id  INTEGER NOT NULL DEFAULT 1,
    workflow        TEXT NOT NULL,
    request_id      TEXT NOT NULL,
    run_id          BLOB NOT NULL,
    plan_version    TEXT NOT NULL,
    version_hash    BLOB,
    idempotency_key BLOB,
    asked           BLOB,
    PRIMARY KEY (org_id, request_id, workflow, project_id, environment_id)
) STRICT, WITHOUT ROWID;

INSERT INTO run_requests (org_id, workflow, request_id, run_id, plan_version)
SELECT org_id, workflow, request_id, run_id, workflow_version FROM runs WHERE request_id IS NOT NULL;

DROP INDEX runs_by_request;
