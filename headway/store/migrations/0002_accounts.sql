-- Who may use how much: plans, and what an administrator sets on tenants, tiers, pools and keys.

create table plan (
    name text primary key,
    tiers text[],                                  -- null: all
    urgent_share double precision not null default 0.25 check (urgent_share between 0 and 1),
    quota json not null default '{}',              -- most in use at once: {"running": n, "cpu": milli, "memory": bytes}
    resource_max json,                             -- most that one task may ask for; null: no bound
    created_at timestamptz not null default clock_now(),
    changed_at timestamptz not null default clock_now()
);
insert into plan (name) values ('default');

alter table tenant
    add column plan text not null default 'default' references plan,
    add column paused boolean not null default false,
    add column changed_at timestamptz not null default clock_now();

alter table tier
    add column weight double precision not null default 1 check (weight > 0),
    add column changed_at timestamptz not null default clock_now();
update tier set weight = 2 where name = 'regular';
update tier set weight = 4 where name = 'premium';

alter table pool
    add column paused boolean not null default false,
    add column peak_line double precision not null default 0.8 check (peak_line > 0 and peak_line <= 1),
    add column peak_hysteresis double precision not null default 0.1,
    add column promotion_margin_ms int not null default 5000 check (promotion_margin_ms >= 0),
    add column half_life_seconds int not null default 3600 check (half_life_seconds > 0),
    add column changed_at timestamptz not null default clock_now(),
    add check (peak_hysteresis >= 0 and peak_hysteresis < peak_line);

alter table api_key
    drop constraint api_key_role_check,
    add constraint api_key_role_check check (role in ('client', 'node', 'admin')),
    add column label text not null default '',
    add column created_by text,
    add column revoked_at timestamptz;

-- Counts the changes to plans, tenants, tiers and pools. Each takes this row first, in its own transaction: so they
-- come one after the other, and who knows the count knows whether there is anything new to read.
create table accounts_version (
    one smallint primary key check (one = 1),
    version bigint not null
);
insert into accounts_version values (1, 1);
