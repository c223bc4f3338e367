-- Content by its digest: scripts, bundles, artifacts, checkpoints (docs/decisions/0013). A blob belongs to one tenant
-- and so does its object on the shelf: nobody learns from an upload what others have.

create table blob (
    pool smallint not null references pool,
    tenant int not null references tenant,
    digest text not null,
    size bigint not null check (size >= 0),
    body bytea,                                             -- of a small one
    place text,                                             -- on the shelf, of any other
    made_at timestamptz not null default clock_now(),
    used_at timestamptz not null default clock_now(),       -- when somebody was last told that it is here
    primary key (pool, tenant, digest),
    check ((body is null) <> (place is null))
);
create index blob_idle on blob (pool, used_at);

insert into blob (pool, tenant, digest, size, body, made_at)
select pool, tenant, digest, length(body), body, created_at from script;
drop table script;

-- What keeps a blob: a task, or, with the first id of a slice of time, any task born in it. In the slices of the tasks.
create table blob_use (
    pool smallint not null,
    tenant int not null,
    digest text not null,
    id bigint not null,
    primary key (pool, tenant, digest, id)
) partition by range (id);
create index blob_use_of_task on blob_use (pool, tenant, id);

-- Objects on the shelf that no blob names: uploads under way, and what has to go. An object is named here or by a blob
-- at every moment of its life, so none is ever lost sight of.
create table blob_garbage (
    pool smallint not null references pool,
    place text not null,
    goes_at timestamptz not null,
    primary key (pool, place)
);
create index blob_garbage_due on blob_garbage (pool, goes_at);

create table blob_total (
    pool smallint not null references pool,
    tenant int not null references tenant,
    bytes bigint not null,
    primary key (pool, tenant)
);
insert into blob_total (pool, tenant, bytes) select pool, tenant, sum(size) from blob group by pool, tenant;

-- What servers sign addresses with. One row, made by the first server.
create table signing_secret (
    single smallint primary key check (single = 1),
    secret bytea not null
);
