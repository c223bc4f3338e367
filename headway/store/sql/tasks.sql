-- name: submit
-- Accepts tasks: the lasting record and the place in the queue, or neither. What tasks of a batch have in common comes
-- once, in $6 to $20; $5 says for each task which of those it has.
with said as materialized (
    select one.id, one.name, one.spec, ($6::int[])[one.t] as tenant, ($7::text[])[one.t] as kind,
           ($8::smallint[])[one.t] as lane, ($9::text[])[one.t] as tier, ($10::text[])[one.t] as script,
           ($11::text[])[one.t] as script_path, ($12::text[])[one.t] as submitted_by,
           ($13::timestamptz[])[one.t] as submitted_at, ($14::timestamptz[])[one.t] as eligible_at,
           ($15::bigint[])[one.t] as delay_tolerance_ms, ($16::bigint[])[one.t] as execution_cap_ms,
           ($17::int[])[one.t] as cap_grace_ms, ($18::smallint[])[one.t] as max_attempts,
           ($19::bigint[])[one.t] as shape, ($20::smallint[])[one.t] as state
    from unnest($2::bigint[], $3::text[], $4::json[], $5::int[]) as one (id, name, spec, t)
), kept as (
    insert into task (pool, tenant, id, name, kind, lane, tier, script, script_path, spec, submitted_by, submitted_at,
                      eligible_at, delay_tolerance_ms, execution_cap_ms, cap_grace_ms, max_attempts)
    select $1, tenant, id, name, kind, lane, tier, script, script_path, spec, submitted_by, submitted_at, eligible_at,
           delay_tolerance_ms, execution_cap_ms, cap_grace_ms, max_attempts from said
)
insert into queue (pool, tenant, id, state, lane, max_attempts, shape, execution_cap_ms, eligible_at, start_by)
select $1, tenant, id, state, lane, max_attempts, shape, execution_cap_ms, eligible_at,
       eligible_at + delay_tolerance_ms * interval '1 millisecond' from said

-- name: announce
-- A hint to leaders in other processes: these tenants have new work. Polling stays the truth.
select pg_notify('headway_ready', $1)

-- name: get
-- Tasks with where they are: in the queue, or how they ended.
with wanted as materialized (
    select $1::smallint as pool, $2::int as tenant, w.* from unnest($3::bigint[]) as w (id)
)
select t.tenant, t.id, t.name, t.kind, t.lane, t.tier, t.script, t.script_path, t.spec, t.submitted_by, t.submitted_at,
       coalesce(q.eligible_at, t.eligible_at) as eligible_at, t.delay_tolerance_ms, t.execution_cap_ms, t.cap_grace_ms,
       t.max_attempts, q.state, q.shape, q.attempt as queue_attempt, q.start_by, q.claimed_at, q.started_at as running_since,
       q.failures, q.losses, coalesce(n.name, o.node_name) as node_name, o.attempt, o.outcome, o.status, o.exit_code, o.started_at,
       o.finished_at, o.code, o.message, o.result, o.attempts
from wanted
join task t on t.pool = any(array[wanted.pool]) and t.tenant = wanted.tenant and t.id = wanted.id
left join queue q on q.pool = any(array[wanted.pool]) and q.tenant = wanted.tenant and q.id = wanted.id
left join node n on n.pool = $1 and n.node = q.node
left join lateral (
    select a.attempt, a.outcome, a.status, a.exit_code, a.started_at, a.finished_at, a.code, a.message, a.result,
           (select m.name from node m where m.pool = $1 and m.node = a.node) as node_name,
           max(a.attempt) over () as attempts
    from attempt a
    where a.pool = any(array[wanted.pool]) and a.tenant = wanted.tenant and a.id = wanted.id
    order by (a.status is not null) desc, a.attempt desc limit 1
) as o on true
order by t.id desc

-- name: ids_newest
select id from task
where pool = $1 and tenant = $2 and id < $3 and ($5::jsonb is null or (spec -> 'tags')::jsonb @> $5)
order by id desc limit $4

-- name: ids_by_name
select id from task
where pool = $1 and tenant = $2 and id < $3 and name = $6 and ($5::jsonb is null or (spec -> 'tags')::jsonb @> $5)
order by id desc limit $4

-- name: ids_waiting
select q.id from queue q
where q.pool = $1 and q.tenant = $2 and q.id < $3 and q.state < 2
  and (($5::jsonb is null and $6::text is null) or exists (
      select from task t where t.pool = $1 and t.tenant = $2 and t.id = q.id
        and ($6::text is null or t.name = $6) and ($5::jsonb is null or (t.spec -> 'tags')::jsonb @> $5)))
order by q.id desc limit $4

-- name: ids_running
select q.id from queue q
where q.pool = $1 and q.tenant = $2 and q.id < $3 and q.state >= 2
  and (($5::jsonb is null and $6::text is null) or exists (
      select from task t where t.pool = $1 and t.tenant = $2 and t.id = q.id
        and ($6::text is null or t.name = $6) and ($5::jsonb is null or (t.spec -> 'tags')::jsonb @> $5)))
order by q.id desc limit $4

-- name: ids_ended
select a.id from attempt a
where a.pool = $1 and a.tenant = $2 and a.id < $3 and a.status = $7
  and (($5::jsonb is null and $6::text is null) or exists (
      select from task t where t.pool = $1 and t.tenant = $2 and t.id = a.id
        and ($6::text is null or t.name = $6) and ($5::jsonb is null or (t.spec -> 'tags')::jsonb @> $5)))
order by a.id desc limit $4

-- name: attempts
-- The tries of a task, those under way included, oldest first.
select a.attempt, a.outcome, a.status, a.exit_code, a.started_at, a.finished_at, a.code, a.message, a.usage, a.tail,
       a.log_bytes, n.name as node,
       case when a.log_bytes > 0 then greatest(a.log_bytes - (
           select coalesce(sum(length(l.body)), 0) from log l
           where l.pool = $1 and l.tenant = $2 and l.id = $3 and l.attempt = a.attempt
       ), 0)::bigint else 0 end as log_dropped
from attempt a left join node n on n.pool = $1 and n.node = a.node
where a.pool = $1 and a.tenant = $2 and a.id = $3 and a.attempt > 0
union all
select q.attempt, null, null, null, coalesce(q.started_at, q.claimed_at), null, '', '', null, null, 0, n.name, 0
from queue q left join node n on n.pool = $1 and n.node = q.node
where q.pool = $1 and q.tenant = $2 and q.id = $3 and q.state >= 2
order by 1

-- name: finished
-- Which of these tasks are over.
with wanted as materialized (
    select $1::smallint as pool, $2::int as tenant, w.* from unnest($3::bigint[]) as w (id)
)
select a.id from wanted
join attempt a on a.pool = any(array[wanted.pool]) and a.tenant = wanted.tenant and a.id = wanted.id and a.status is not null

-- name: counts
-- Unfinished tasks by state, for the monitor.
select state, count(*) as tasks from queue where pool = $1 group by state

-- name: keep_logs
-- Pieces may come again, and the last one of an output longer than it came before.
insert into log (pool, tenant, id, attempt, at, body)
select distinct on (tenant, id, attempt, at) $1, tenant, id, attempt, at, body
from unnest($2::int[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bytea[])
    as said (tenant, id, attempt, at, body)
order by tenant, id, attempt, at, length(body) desc
on conflict (pool, tenant, id, attempt, at) do update set body = excluded.body
where length(excluded.body) > length(log.body)

-- name: roll_logs
-- Behind the first bytes of an output only the newest are kept: from $5 up to $6 they go.
delete from log using unnest($2::int[], $3::bigint[], $4::smallint[], $6::bigint[]) as old (tenant, id, attempt, until)
where log.pool = $1 and log.tenant = old.tenant and log.id = old.id and log.attempt = old.attempt
    and log.at >= $5 and log.at < old.until

-- name: read_log
-- Pieces of one attempt's log that reach behind a byte; none is longer than $6.
select at, body from log
where pool = $1 and tenant = $2 and id = $3 and attempt = $4 and at > $5::bigint - $6::bigint
    and at + length(body) > $5
order by at limit $7

-- name: keep_shapes
insert into shape (pool, tenant, shape, body)
select $1, tenant, shape, body from unnest($2::int[], $3::bigint[], $4::json[]) as said (tenant, shape, body)
on conflict do nothing

-- name: read_shapes
select s.shape, s.body from unnest($2::int[], $3::bigint[]) as wanted (tenant, shape)
join shape s on s.pool = $1 and s.tenant = wanted.tenant and s.shape = wanted.shape
