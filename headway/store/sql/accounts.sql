-- name: count_change
-- First in the transaction of every change to what `policy` reads: changes come one after the other.
update accounts_version set version = version + 1 where one = 1

-- name: policy
-- All that decides who may use how much, as of one moment; no row when it is still the version known.
select v.version,
       (select to_json(p) from pool p where p.pool = $1) as pool,
       (select coalesce(json_agg(p), '[]') from plan p) as plans,
       (select coalesce(json_agg(t), '[]') from tenant t) as tenants,
       (select coalesce(json_agg(t), '[]') from tier t) as tiers,
       (select coalesce(json_agg(n), '[]') from paused_name n) as paused_names
from accounts_version v where v.one = 1 and v.version <> $2

-- name: create_tenant
-- Numbers come without a sequence; `count_change` keeps two creations from taking the same one.
insert into tenant as t (tenant, name, plan)
select coalesce(max(o.tenant), 0) + 1, $1, $2 from tenant o
on conflict do nothing
returning to_json(t)

-- name: tenants
select to_json(t) from tenant t where name > $1 order by name limit $2

-- name: tenant
select to_json(t) from tenant t where name = $1

-- name: tenant_by_number
select to_json(t) from tenant t where tenant = $1

-- name: change_tenant
-- What the JSON does not mention stays.
update tenant as t
set (plan, paused, fresh, changed_at) = (
    select n.plan, n.paused, n.fresh, clock_now() from json_populate_record(t, $2) as n)
where t.name = $1
returning to_json(t)

-- name: create_plan
-- What the JSON does not mention bounds nothing.
insert into plan as p (name, tiers, urgent_share, quota, resource_max, admission, profiles, network, fresh)
select $1, n.tiers, coalesce(n.urgent_share, 0.25), coalesce(n.quota, '{}'), n.resource_max,
       coalesce(n.admission, 'warn'), coalesce(n.profiles, '{}'), coalesce(n.network, false),
       coalesce(n.fresh, false)
from json_populate_record(null::plan, $2) as n
on conflict do nothing
returning to_json(p)

-- name: plans
select to_json(p) from plan p order by name

-- name: plan
select to_json(p) from plan p where name = $1

-- name: change_plan
-- What the JSON does not mention stays.
update plan as p
set (tiers, urgent_share, quota, resource_max, admission, profiles, network, fresh, changed_at) = (
    select n.tiers, n.urgent_share, n.quota, n.resource_max, n.admission, n.profiles, n.network, n.fresh, clock_now()
    from json_populate_record(p, $2) as n)
where p.name = $1
returning to_json(p)

-- name: tiers
select to_json(t) from tier t order by name

-- name: tier
select to_json(t) from tier t where name = $1

-- name: change_tier
-- What the JSON does not mention stays.
update tier as t
set (needs, default_cap_ms, max_cap_ms, weight, price, profile, changed_at) = (
    select n.needs, n.default_cap_ms, n.max_cap_ms, n.weight, n.price, n.profile, clock_now()
    from json_populate_record(t, $2) as n)
where t.name = $1
returning to_json(t)

-- name: create_tier
-- Where `change_tier` found none. What the JSON does not mention gets a value that goes with the rest; the resources
-- must be mentioned.
insert into tier as t (name, needs, default_cap_ms, max_cap_ms, weight, price, profile)
select $1, n.needs, coalesce(n.default_cap_ms, least(30 * 60000, n.max_cap_ms)),
       coalesce(n.max_cap_ms, greatest(6 * 60 * 60000, n.default_cap_ms)),
       coalesce(n.weight, 1), coalesce(n.price, 0), coalesce(n.profile, 'sandboxed')
from json_populate_record(null::tier, $2) as n
where n.needs is not null and not exists (select from tier o where o.name = $1)
returning to_json(t)

-- name: pause_name
-- What is paused already stays as it is. No row when the tenant has too many.
insert into paused_name as n (tenant, name, paused_by)
select $1, $2, $3
where (select count(*) from paused_name o where o.tenant = $1 and o.name <> $2) < $4
on conflict (tenant, name) do update set paused_by = n.paused_by
returning to_json(n)

-- name: resume_name
delete from paused_name where tenant = $1 and name = $2 returning name

-- name: paused_names
select to_json(n) from paused_name n where tenant = $1 order by name

-- name: pools
select to_json(p) from pool p order by name

-- name: pool
select to_json(p) from pool p where name = $1

-- name: change_pool
-- What the JSON does not mention stays.
update pool as p
set (paused, peak_line, peak_hysteresis, promotion_margin_ms, half_life_seconds, demand_target, changed_at) = (
    select n.paused, n.peak_line, n.peak_hysteresis, n.promotion_margin_ms, n.half_life_seconds, n.demand_target,
           clock_now()
    from json_populate_record(p, $2) as n)
where p.name = $1
returning to_json(p)

-- name: create_key
-- No row when there is no such tenant.
insert into api_key as k (key_id, tenant, role, digest, label, created_by)
select $1, t.tenant, $3, $4, $5, $6 from tenant t where t.name = $2
returning json_build_object('id', k.key_id, 'tenant', $2::text, 'role', k.role, 'label', k.label,
                            'created_by', k.created_by, 'created_at', k.created_at)

-- name: keys
-- Keys in force, of one tenant and role or of all.
select json_build_object('id', k.key_id, 'tenant', t.name, 'role', k.role, 'label', k.label,
                         'created_by', k.created_by, 'created_at', k.created_at)
from api_key k join tenant t on t.tenant = k.tenant
where k.revoked_at is null and k.key_id > $3 and ($1::text is null or t.name = $1) and ($2::text is null or k.role = $2)
order by k.key_id limit $4

-- name: revoke_key
-- No row when no such key is in force, or not of that tenant and role.
update api_key set revoked_at = clock_now()
where key_id = $1 and revoked_at is null and ($2::int is null or tenant = $2) and ($3::text is null or role = $3)
returning key_id
