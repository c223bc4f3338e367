-- name: elect
-- Takes the leadership of a pool that is free, whose lease ran out, or that this very server led before it was
-- restarted; each taking is a new epoch. The row lock waits
-- for claims under way (they hold it FOR SHARE), so none commits behind the new leader's back.
insert into leadership as l (pool, epoch, server, lease_until)
values ($1, 1, $2, clock_now() + $3 * interval '1 second')
on conflict (pool) do update
set epoch = l.epoch + 1, server = $2, lease_until = clock_now() + $3 * interval '1 second'
where l.lease_until < clock_now() or l.server = $2
returning epoch

-- name: renew
-- Keeps the leadership; no row when the epoch is over.
update leadership set lease_until = clock_now() + $3 * interval '1 second'
where pool = $1 and epoch = $2 and lease_until >= clock_now()
returning epoch

-- name: resign
update leadership set lease_until = clock_now() - interval '1 second' where pool = $1 and epoch = $2

-- name: leader
select epoch, server from leadership where pool = $1 and lease_until >= clock_now()

-- name: take_issuer
-- The lowest number of this pool whose lease ran out, or the lowest that no pool has had; no row when all 1,024 are
-- taken. One whose stamps run far ahead of the clock (which then stood wrong) rests until the clock has caught up.
with free as (
    select issuer, used_until_ms from issuer
    where pool = $1 and lease_until < clock_now() and used_until_ms < extract(epoch from clock_now()) * 1000 + 2 * $4
    order by issuer limit 1 for update skip locked
), fresh as (
    select next.issuer from (select coalesce(max(issuer) + 1, 0)::smallint as issuer from issuer) as next
    where next.issuer < 1024 and not exists (select from free)
), taken as (
    update issuer i
    set holder = $2, lease_until = clock_now() + $3 * interval '1 second',
        used_until_ms = greatest(i.used_until_ms, (extract(epoch from clock_now()) * 1000)::bigint) + $4
    from free where i.issuer = free.issuer
    returning i.issuer, free.used_until_ms
), added as (
    insert into issuer (issuer, pool, holder, lease_until, used_until_ms)
    select issuer, $1, $2, clock_now() + $3 * interval '1 second', (extract(epoch from clock_now()) * 1000)::bigint + $4
    from fresh
    on conflict do nothing
    returning issuer, 0::bigint as used_until_ms
)
select issuer, used_until_ms from taken union all select issuer, used_until_ms from added

-- name: renew_issuer
-- Keeps a number and moves the line below which no later holder may stamp.
update issuer
set lease_until = clock_now() + $3 * interval '1 second', used_until_ms = greatest(used_until_ms, $4)
where issuer = $1 and holder = $2 and lease_until >= clock_now()
returning used_until_ms

-- name: pool_of_issuers
select issuer, pool from issuer

-- name: join_node
-- A node's session begins. `other` tells that the row belonged to another start of the agent.
insert into node as n (pool, node, name, incarnation, capacity, labels, functions, home, profiles, degraded, connected,
                       lease_until, seen_at)
values ($1, (select coalesce(max(node), 0) + 1 from node where pool = $1), $2, $3, $4, $5, $6, $8, $9, $10, true,
        clock_now() + $7 * interval '1 second', clock_now())
on conflict (pool, name) do update
set incarnation = $3, capacity = $4, labels = $5, functions = $6, home = $8, profiles = $9, degraded = $10,
    connected = true, lease_until = clock_now() + $7 * interval '1 second', seen_at = clock_now()
returning node

-- name: find_node
select node, incarnation, home, extract(epoch from lease_until - clock_now())::float8 as lease_seconds
from node where pool = $1 and name = $2

-- name: renew_nodes
update node set lease_until = clock_now() + $3 * interval '1 second', seen_at = clock_now(), connected = true
where pool = $1 and node = any($2::int[])

-- name: leave_node
update node set connected = false where pool = $1 and node = $2 and incarnation = $3

-- name: lapsed_nodes
-- Nodes that own attempts and whose lease ran out: what they ran has been stopped by themselves.
select n.node, n.name from node n
where n.pool = $1 and n.lease_until < clock_now() and not (n.node = any($2::int[]))
  and exists (select from queue q where q.pool = $1 and q.state >= 2 and q.node = n.node)

-- name: owned_by
-- What nodes own, and what is to be known of it when they come back.
select q.tenant, q.id, q.attempt, q.claims, q.node, q.state, q.lane, q.shape, q.execution_cap_ms, q.used_ms, q.pauses,
       q.claimed_at, q.started_at, t.cap_grace_ms
from queue q join task t on t.pool = q.pool and t.tenant = q.tenant and t.id = q.id
where q.pool = $1 and q.state >= 2 and q.node = any($2::int[])

-- name: nodes
select node, name, capacity, labels, functions, connected, seen_at from node where pool = $1 order by name

-- name: known_capacities
-- What the nodes have that are there or were lately; one that says nothing of itself tells nothing of the pool.
select name, capacity from node
where pool = $1 and (connected or seen_at > clock_now() - interval '24 hours') and capacity::text <> '{}'
order by name

-- name: tenants
select tenant, name from tenant order by tenant

-- name: key
select key_id, tenant, role, digest from api_key where key_id = $1 and revoked_at is null

-- name: keep_key
-- A key that was revoked stays so.
insert into api_key as k (key_id, tenant, role, digest) values ($1, $2, $3, $4)
on conflict (key_id) do update set digest = $4, role = $3
returning k.revoked_at is null as valid

-- name: hour
select clock_now() as now
