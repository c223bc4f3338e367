-- What the leader of a pool tells the other servers about it: why its lines wait, how long new work will, whether the
-- pool has enough. One bounded row a pool, written by the leader of `epoch` and by nobody of an earlier one.
create table outlook (
    pool smallint primary key references pool,
    epoch bigint not null,
    written_at timestamptz not null,
    body json not null
);

-- What becomes of a task that cannot start within its tolerance: accepted with a warning, or refused.
alter table plan
    add column admission text not null default 'warn' check (admission in ('warn', 'refuse'));

-- How much more than is asked for a pool should have; `headway_nodes_wanted` is made from it.
alter table pool
    add column demand_target double precision not null default 1.25 check (demand_target >= 0.1);
