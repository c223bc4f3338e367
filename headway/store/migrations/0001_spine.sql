-- The spine's schema. Every key and index of a table that grows starts with (pool, tenant): pool is the sharding key
-- (Citus distributes by it unchanged) and tenant keeps neighbours apart in every lookup.

create function clock_now() returns timestamptz language sql stable parallel safe as $$ select statement_timestamp() $$;
comment on function clock_now() is 'The hour that judges leases. Tests replace it; nothing else asks another clock.';

create table pool (
    pool smallint primary key,
    name text not null unique
);
insert into pool values (1, 'default');

create table tenant (
    tenant int primary key,
    name text not null unique,
    created_at timestamptz not null default clock_now()
);
insert into tenant (tenant, name) values (1, 'default');

create table api_key (
    key_id text primary key,
    tenant int not null references tenant,
    role text not null check (role in ('client', 'node')),
    digest bytea not null,
    created_at timestamptz not null default clock_now()
);
create index api_key_of_tenant on api_key (tenant);

create table tier (
    name text primary key,
    needs json not null,
    default_cap_ms bigint not null check (default_cap_ms > 0),
    max_cap_ms bigint not null check (max_cap_ms >= default_cap_ms)
);
insert into tier values
    ('basic',   '{"cpu": 500, "memory": 268435456}',   5 * 60000,   60 * 60000),
    ('regular', '{"cpu": 1000, "memory": 1073741824}', 30 * 60000,  6 * 60 * 60000),
    ('premium', '{"cpu": 2000, "memory": 4294967296}', 120 * 60000, 48 * 60 * 60000);

-- A number that makes ids unique: held by one gateway at a time, belonging to one pool for ever. `used_until_ms` is
-- the first millisecond the next holder may stamp, so that ids stay unique even when clocks disagree.
create table issuer (
    issuer smallint primary key check (issuer between 0 and 1023),
    pool smallint not null references pool,
    holder text not null,
    lease_until timestamptz not null,
    used_until_ms bigint not null
);

create table leadership (
    pool smallint primary key references pool,
    epoch bigint not null,
    server text not null,
    lease_until timestamptz not null
);

create table node (
    pool smallint not null references pool,
    node int not null,
    name text not null,
    incarnation text not null,
    home text not null,
    capacity json not null,
    labels json not null,
    functions json not null,
    connected boolean not null,
    lease_until timestamptz not null,
    seen_at timestamptz not null,
    primary key (pool, node),
    unique (pool, name)
);

-- What decides where a task may run, once for all tasks alike in it. The number is a hash of the body.
create table shape (
    pool smallint not null references pool,
    tenant int not null references tenant,
    shape bigint not null,
    body json not null,
    primary key (pool, tenant, shape)
);

create table script (
    pool smallint not null references pool,
    tenant int not null references tenant,
    digest text not null,
    body bytea not null,
    created_at timestamptz not null default clock_now(),
    primary key (pool, tenant, digest)
);

-- Cold: what was asked for. Written once, never changed.
create table task (
    pool smallint not null,
    tenant int not null,
    id bigint not null,
    name text not null,
    kind text not null check (kind in ('command', 'script', 'function')),
    lane smallint not null check (lane between 0 and 3),
    tier text not null,
    script text,
    script_path text,
    spec json not null,
    submitted_by text not null,
    submitted_at timestamptz not null,
    eligible_at timestamptz not null,
    delay_tolerance_ms bigint not null check (delay_tolerance_ms >= 0),
    execution_cap_ms bigint not null check (execution_cap_ms > 0),
    cap_grace_ms int not null check (cap_grace_ms >= 0),
    max_attempts smallint not null check (max_attempts between 1 and 100),
    primary key (pool, tenant, id)
) partition by range (id);

-- Hot: one narrow row for each unfinished task; the only row that its life changes.
-- state: 0 scheduled, 1 ready, 2 claimed, 3 running, 4 cancelling   (core/lifecycle.py)
create table queue (
    pool smallint not null,
    tenant int not null,
    id bigint not null,
    state smallint not null check (state between 0 and 4),
    lane smallint not null,
    attempt smallint not null default 0 check (attempt >= 0),
    claims int not null default 0,
    failures smallint not null default 0,
    losses smallint not null default 0,
    max_attempts smallint not null,
    node int,
    shape bigint not null,
    execution_cap_ms bigint not null,
    eligible_at timestamptz not null,
    start_by timestamptz not null,
    claimed_at timestamptz,
    started_at timestamptz,
    epoch bigint,
    primary key (pool, tenant, id),
    check ((state >= 2) = (node is not null)),
    check (state < 2 or (claimed_at is not null and epoch is not null and attempt > 0)),
    check (start_by >= eligible_at)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.5);
create index queue_ready on queue (pool, tenant, lane, shape, start_by, execution_cap_ms, id) where state = 1;
create index queue_scheduled on queue (pool, eligible_at) where state = 0;
create index queue_owned on queue (pool, tenant, id) where state >= 2;

-- How attempts ended. Append-only; the last one of a task that left the queue is its outcome.
-- outcome: 0 done, 1 failed, 2 capped, 3 killed, 4 lost   status: 2 done, 3 failed, 4 cancelled, null: tried again
create table attempt (
    pool smallint not null,
    tenant int not null,
    id bigint not null,
    attempt smallint not null,
    outcome smallint not null check (outcome between 0 and 4),
    status smallint check (status between 2 and 4),
    node int,
    exit_code int,
    log_bytes bigint not null default 0,
    started_at timestamptz,
    finished_at timestamptz not null,
    code text not null,
    message text not null,
    result json,
    usage json,
    tail bytea,
    primary key (pool, tenant, id, attempt)
) partition by range (id);
create index attempt_gone_wrong on attempt (pool, tenant, status, id) where status > 2;

create table log (
    pool smallint not null,
    tenant int not null,
    id bigint not null,
    attempt smallint not null,
    sequence int not null,
    body bytea not null,
    primary key (pool, tenant, id, attempt, sequence)
) partition by range (id);
