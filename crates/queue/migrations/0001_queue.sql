-- Times are of this server's clock (clock_timestamp()). Tables stand in the schema of the search path.

CREATE TABLE jobs (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner TEXT NOT NULL,
    verb TEXT NOT NULL,
    places TEXT[] NOT NULL,
    options TEXT[] NOT NULL,
    endpoints TEXT[] NOT NULL,
    sessions INTEGER NOT NULL,
    rate_bps BIGINT,
    credential TEXT,
    retries INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'running', 'done', 'failed', 'cancelled')),
    cancel_asked BOOLEAN NOT NULL DEFAULT FALSE,
    submitted_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    not_before TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    ended_at TIMESTAMPTZ,
    -- Attempts that began, those that failed, and those that ended with their worker.
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    -- The lease of the attempt that runs: the worker's name, its state directory on one start of its machine, its process.
    worker TEXT,
    holder TEXT,
    session TEXT,
    lease_until TIMESTAMPTZ,
    granted INTEGER,
    -- Its progress.
    done_bytes BIGINT,
    total_bytes BIGINT,
    done_files BIGINT,
    total_files BIGINT,
    now_bps DOUBLE PRECISION,
    left_seconds DOUBLE PRECISION,
    -- The last result.
    exit INTEGER,
    error TEXT,
    CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    -- Readers take many rows at a time.
    CHECK (octet_length(owner) <= 128 AND octet_length(places::text || options::text) <= 262144)
);

CREATE INDEX jobs_waiting ON jobs (owner, id) WHERE state = 'waiting';
CREATE INDEX jobs_running ON jobs (session) WHERE state = 'running';
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE attempts (
    job BIGINT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    session TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    ended_at TIMESTAMPTZ,
    -- NULL: it runs. Otherwise done, failed, stopped or lost.
    outcome TEXT,
    exit INTEGER,
    error TEXT,
    bytes BIGINT,
    files BIGINT,
    seconds DOUBLE PRECISION,
    verified TEXT,
    PRIMARY KEY (job, number)
);

CREATE INDEX attempts_ended ON attempts (ended_at) WHERE outcome = 'done';

CREATE TABLE owners (
    name TEXT NOT NULL PRIMARY KEY,
    served_at TIMESTAMPTZ
);

CREATE TABLE workers (
    session TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    slots INTEGER NOT NULL,
    started_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    seen_until TIMESTAMPTZ NOT NULL
);

-- Minutes are those of the day in the time zone.
CREATE TABLE limits (
    endpoint TEXT NOT NULL PRIMARY KEY,
    sessions INTEGER,
    rate_bps BIGINT,
    from_minute INTEGER,
    to_minute INTEGER,
    zone TEXT NOT NULL DEFAULT 'UTC'
);
