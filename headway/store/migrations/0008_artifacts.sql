-- What attempts left: one archive each, a blob, and what is in it. In the slices of the tasks.
create table artifact (
    pool smallint not null,
    tenant int not null,
    id bigint not null,
    attempt smallint not null,
    digest text not null,
    bytes bigint not null,
    files int not null,
    manifest text not null,                 -- JSON; text, because a name may hold what json refuses
    primary key (pool, tenant, id, attempt)
) partition by range (id);
