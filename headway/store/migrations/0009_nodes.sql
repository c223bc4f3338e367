-- Nodes that take no more, because an operator or the leader says so; and what is told of nodes.

alter table node
    add column cordoned_by text,                            -- who keeps tasks from it; null: nobody
    add column draining boolean not null default false,     -- what runs there is to end, or to leave
    add column drain_until timestamptz,                     -- when it has to leave; null: no deadline
    add column quarantined_until timestamptz,               -- the leader keeps tasks from it until then
    add column quarantines smallint not null default 0,     -- how often it was, since somebody last let it take tasks
    add column why text not null default '';                -- of the quarantine

-- What an operator must be told. Read like `event` (docs/decisions/0012).
create table node_event (
    pool smallint not null,
    tx xid8 not null default pg_current_xact_id(),
    seq bigint not null default nextval('event_seq'),
    at timestamptz not null default clock_now(),
    node int not null,
    name text not null,
    kind text not null,
    message text not null,
    primary key (pool, tx, seq)
);

alter table queue add column leaves boolean not null default false; -- its pause is to free its node
