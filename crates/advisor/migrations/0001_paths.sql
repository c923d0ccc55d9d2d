-- The same text for SQLite and PostgreSQL. Times are milliseconds since 1970, UTC.

CREATE TABLE servers (
    name TEXT NOT NULL PRIMARY KEY,
    started_ms BIGINT NOT NULL
);

CREATE TABLE clients (
    server TEXT NOT NULL,
    client TEXT NOT NULL,
    source TEXT NOT NULL,
    added_ms BIGINT NOT NULL,
    seen_ms BIGINT NOT NULL,
    asked_ms BIGINT,
    asked_bytes BIGINT NOT NULL,
    tests TEXT,
    PRIMARY KEY (server, client)
);

-- A span of 0 is one measurement; otherwise value is the mean of the samples in the span that begins at at_ms.
CREATE TABLE measurements (
    server TEXT NOT NULL,
    client TEXT NOT NULL,
    test TEXT NOT NULL,
    quantity TEXT NOT NULL,
    span_ms BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    samples BIGINT NOT NULL,
    value DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (server, client, test, quantity, span_ms, at_ms)
);

CREATE INDEX measurements_by_age ON measurements (server, span_ms, at_ms);

-- The latest detail of each test.
CREATE TABLE details (
    server TEXT NOT NULL,
    client TEXT NOT NULL,
    test TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (server, client, test)
);

CREATE TABLE leases (
    name TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    until_ms BIGINT NOT NULL
);
