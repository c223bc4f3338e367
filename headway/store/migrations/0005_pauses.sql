-- Tasks that are paused, frozen, resumed elsewhere or changed under way, and what is told of them.

alter table queue
    drop constraint queue_state_check,
    add constraint queue_state_check check (state between -1 and 7),   -- core/lifecycle.py
    add column used_ms bigint not null default 0 check (used_ms >= 0), -- of the cap, before it gave way to others
    add column pauses smallint not null default 0,                     -- how often it did
    add column checkpoint text,                                        -- what the next attempt begins from
    add column changed boolean not null default false;                 -- the leader has not taken a change in yet
create index queue_ordered on queue (pool, tenant, id) where state >= 4;
create index queue_changed on queue (pool, tenant, id) where changed;

alter table attempt
    drop constraint attempt_outcome_check,
    add constraint attempt_outcome_check check (outcome between 0 and 5);

-- What a client must be told, written in the transaction that makes it so (docs/decisions/0012). Read in the order of
-- (tx, seq), and only what no transaction under way can still come before. In slices of task ids, like what it tells of.
-- status: 3 failed, 4 cancelled, null: the task goes on
create sequence event_seq;
create table event (
    pool smallint not null,
    tenant int not null,
    id bigint not null,
    tx xid8 not null default pg_current_xact_id(),
    seq bigint not null default nextval('event_seq'),
    at timestamptz not null default clock_now(),
    kind text not null,
    status smallint check (status between 3 and 4),
    attempt smallint not null,
    code text not null,
    message text not null,
    primary key (pool, tenant, tx, seq, id)
) partition by range (id);
create index event_of_task on event (pool, tenant, id, tx, seq);
