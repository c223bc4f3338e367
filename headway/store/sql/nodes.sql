-- Which nodes take no more tasks, who said so, and what is told of it.

-- name: cordon
-- Keeps tasks from a node; what runs there goes on. One that is drained is not any more.
with changed as (
    update node set cordoned_by = $3, draining = false, drain_until = null where pool = $1 and name = $2
    returning node, name
), told as (
    insert into node_event (pool, node, name, kind, message) select $1, node, name, 'cordoned', 'by ' || $3 from changed
)
select node from changed

-- name: drain
-- Keeps tasks from a node and, behind the deadline, has what runs there leave; null: no deadline.
with changed as (
    update node set cordoned_by = $3, draining = true, drain_until = clock_now() + $4::float8 * interval '1 second'
    where pool = $1 and name = $2
    returning node, name
), told as (
    insert into node_event (pool, node, name, kind, message) select $1, node, name, 'drained', 'by ' || $3 from changed
)
select node from changed

-- name: uncordon
-- Lets a node take tasks again, whoever kept them from it.
with changed as (
    update node
    set cordoned_by = null, draining = false, drain_until = null, quarantined_until = null, quarantines = 0, why = ''
    where pool = $1 and name = $2
    returning node, name
), told as (
    insert into node_event (pool, node, name, kind, message) select $1, node, name, 'uncordoned', 'by ' || $3 from changed
)
select node from changed

-- name: quarantine
-- The leader keeps tasks from a node that fails them; longer each time.
with changed as (
    update node
    set quarantined_until = clock_now() + least($4::float8 * 2 ^ quarantines, $5::float8) * interval '1 second',
        quarantines = least(quarantines + 1, 100), why = $3
    where pool = $1 and node = $2
    returning node, name
), told as (
    insert into node_event (pool, node, name, kind, message) select $1, node, name, 'quarantined', $3 from changed
)
select node from changed

-- name: end_quarantines
-- Time has released them.
with changed as (
    update node set quarantined_until = null, why = '' where pool = $1 and quarantined_until <= clock_now()
    returning node, name
), told as (
    insert into node_event (pool, node, name, kind, message)
    select $1, node, name, 'released', 'its quarantine is over' from changed
)
select node from changed

-- name: closed
-- The nodes that take no more, and what has to leave now.
select node, draining and drain_until <= clock_now() as must_leave, quarantined_until is not null as is_quarantined
from node where pool = $1 and (cordoned_by is not null or quarantined_until is not null)

-- name: nodes
-- All nodes by name, or one ($2), with whether each has attempts, and how many of a tenant's ($3), or of all.
select n.node, n.name, n.capacity, n.labels, n.functions, n.profiles, n.degraded, n.connected, n.seen_at, n.cordoned_by,
       n.draining, n.drain_until, n.quarantined_until, n.why,
       exists (select from queue q where q.pool = $1 and q.state >= 2 and q.node = n.node) as is_busy,
       (select count(*) from queue q where q.pool = $1 and q.state >= 2 and q.node = n.node
        and ($3::int is null or q.tenant = $3)) as owned
from node n where n.pool = $1 and ($2::text is null or n.name = $2) order by n.name

-- name: events
-- What happened to nodes behind a place, oldest first.
select e.tx::text as tx, seq, at, name, kind, message from node_event e
where pool = $1 and (e.tx, seq) > ($2::text::xid8, $3::bigint) and e.tx < pg_snapshot_xmin(pg_current_snapshot())
  and ($4::text is null or name = $4)
order by e.tx, seq limit $5
