-- What a tier costs and how its tasks are to be closed in; task names that are paused.

alter table tier
    add column price numeric not null default 0
        check (price >= 0 and price <= 1000000000 and scale(price) <= 6),    -- of one task for an hour, in no currency
    add column profile text not null default 'trusted'
        check (profile in ('trusted', 'sandboxed', 'container', 'hostile'));

-- A name, or the beginning of names when it ends in `*`. No row: not paused.
create table paused_name (
    tenant int not null references tenant,
    name text not null,
    paused_by text not null,
    paused_at timestamptz not null default clock_now(),
    primary key (tenant, name)
);
