-- A request id is unique within its org, project, environment and workflow: the same id for another workflow is another
-- request. Projects and environments have the number 1 until there are more of them.

ALTER TABLE run_requests RENAME TO run_requests_before;
ALTER TABLE run_requests_before RENAME CONSTRAINT run_requests_pkey TO run_requests_before_pkey;

-- `version_hash` and `asked` are what a request that comes again is compared with (rows from before this step have none);
-- `plan_version` and `idempotency_key` say which version the request was for. None of them is part of what is unique: a
-- request that is sent again after its tag has moved is the same request.
CREATE TABLE run_requests (
    org_id          integer NOT NULL,
    project_id      integer NOT NULL DEFAULT 1,
    environment_id  integer NOT NULL DEFAULT 1,
    workflow        text NOT NULL,
    request_id      text NOT NULL,
    run_id          uuid NOT NULL,
    plan_version    text NOT NULL,
    version_hash    bytea,
    idempotency_key bytea,
    asked           bytea,
    PRIMARY KEY (org_id, request_id, workflow, project_id, environment_id)
);

INSERT INTO run_requests (org_id, workflow, request_id, run_id, plan_version)
SELECT r.org_id, r.workflow, q.request_id, q.run_id, r.workflow_version
FROM run_requests_before AS q JOIN runs AS r ON r.run_id = q.run_id AND r.org_id = q.org_id;

DROP TABLE run_requests_before;
