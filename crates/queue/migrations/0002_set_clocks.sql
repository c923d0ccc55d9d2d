-- Columns that keep their meaning when this server's clock is set.

-- Length of the lease: workers count it by their own clocks. NULL: a worker of an earlier version.
ALTER TABLE jobs ADD COLUMN lease_seconds DOUBLE PRECISION;

-- When the wait until not_before began. One that begins in the future is counted anew.
ALTER TABLE jobs ADD COLUMN waits_from TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp();
CREATE INDEX jobs_waits_from ON jobs (waits_from) WHERE state = 'waiting';
