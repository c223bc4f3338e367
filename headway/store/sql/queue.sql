-- How rows are looked up by key here, and why it looks odd. `queue` and `attempt` change so fast that statistics lie,
-- and on a table the planner believes empty "all rows of the pool, filtered" looks as cheap as a look-up by key: a claim
-- of 1,000 took 0.6 s instead of 12 ms. So the pool comes out of a materialized CTE and is matched by
-- `= any(array[...])`, and states are compared as `state + 0`: then no index serves without the whole key, and with
-- sequential scans off only one plan is left (tests/store/test_plans.py, docs/decisions/0003).
--
-- A statement that does one thing to a row or another, by its state, locks it first and asks the locked row. Were each
-- branch to ask for itself, then a row whose state changes while the statement waits for it would belong to neither: one
-- branch finds it changed, and the other still sees it as it was.

-- name: claim
-- Gives ready tasks to nodes, on behalf of the leader of this epoch only. A row that does not come back was no longer
-- ready, or the epoch is over. FOR SHARE against the election's FOR UPDATE: no claim commits behind a new leader.
with leader as (
    select epoch from leadership where pool = $1 and epoch = $2 for share
), wanted as materialized (
    select $1::smallint as pool, w.* from unnest($3::int[], $4::bigint[], $5::int[]) as w (tenant, id, node)
), claimed as (
    update queue q
    set state = 2, attempt = q.attempt + 1, claims = q.claims + 1, node = wanted.node, epoch = $2, claimed_at = clock_now(), started_at = null
    from wanted
    where q.pool = any(array[wanted.pool]) and q.tenant = wanted.tenant and q.id = wanted.id and q.state + 0 = 1
      and exists (select from leader)
    returning q.pool, q.tenant, q.id, q.attempt, q.claims, q.node, q.checkpoint,
              greatest(q.execution_cap_ms - q.used_ms, 1) as cap_ms
)
select claimed.tenant, claimed.id, claimed.attempt, claimed.node, claimed.cap_ms, t.kind, t.cap_grace_ms, t.spec,
       claimed.claims, t.name, claimed.checkpoint
from claimed join task t on t.pool = any(array[claimed.pool]) and t.tenant = claimed.tenant and t.id = claimed.id

-- name: start
-- Notes that claimed attempts really began.
with began as materialized (
    select $1::smallint as pool, b.* from unnest($2::int[], $3::bigint[], $4::smallint[]) as b (tenant, id, attempt)
)
update queue q set state = 3, started_at = clock_now()
from began
where q.pool = any(array[began.pool]) and q.tenant = began.tenant and q.id = began.id and q.attempt = began.attempt
  and q.state + 0 = 2

-- name: release
-- Takes back attempts that never began: they cost nothing. Those being cancelled end here instead. An attempt's number
-- is used again then, so it is the count of claims that tells this claim from a later one.
with back as materialized (
    select $1::smallint as pool, b.* from unnest($2::int[], $3::bigint[], $4::int[]) as b (tenant, id, claims)
), mine as materialized (
    select back.*, q.state from back
    join queue q on q.pool = any(array[back.pool]) and q.tenant = back.tenant and q.id = back.id
                and q.claims = back.claims
    for update of q
), ready as (
    update queue q
    set state = 1, attempt = q.attempt - 1, node = null, epoch = null, claimed_at = null, started_at = null
    from mine
    where q.pool = any(array[mine.pool]) and q.tenant = mine.tenant and q.id = mine.id and mine.state = 2
    returning q.tenant, q.id, q.lane, q.shape, extract(epoch from q.start_by)::float8 as start_by, q.execution_cap_ms
), paused as (
    update queue q
    set state = -1, attempt = q.attempt - 1, node = null, epoch = null, claimed_at = null, started_at = null
    from mine
    where q.pool = any(array[mine.pool]) and q.tenant = mine.tenant and q.id = mine.id and mine.state = 6
    returning q.tenant, q.id, q.attempt
), cancelled as (
    delete from queue q using mine
    where q.pool = any(array[mine.pool]) and q.tenant = mine.tenant and q.id = mine.id and mine.state = 4
    returning q.tenant, q.id
), outcome as (
    insert into attempt (pool, tenant, id, attempt, outcome, status, finished_at, code, message)
    select $1, tenant, id, 0, 3, 4, clock_now(), 'cancelled', 'cancelled before it began' from cancelled
), told as (
    insert into event (pool, tenant, id, kind, status, attempt, code, message)
    select $1, tenant, id, 'cancelled', 4, 0, 'cancelled', 'cancelled before it began' from cancelled
    union all
    select $1, tenant, id, 'paused', null, attempt, 'paused', 'paused before it began' from paused
)
select tenant, id, lane, shape, start_by, execution_cap_ms from ready

-- name: finish
-- Ends attempts for good, success or not. A row that does not come back had lost its lease: its result is discarded.
-- A failure of what was being cancelled is a cancellation. What did not end well is told (docs/decisions/0012).
with said as materialized (
    select $1::smallint as pool, s.* from unnest($2::int[], $3::bigint[], $4::smallint[], $5::smallint[], $6::smallint[], $7::bigint[],
                         $8::int[], $9::bigint[], $10::text[], $11::text[], $12::json[], $13::json[], $14::bytea[])
        as s (tenant, id, attempt, outcome, status, ran_ms, exit_code, log_bytes, code, message, result, usage, tail)
), gone as (
    delete from queue q using said
    where q.pool = any(array[said.pool]) and q.tenant = said.tenant and q.id = said.id
      and q.attempt = said.attempt and q.state + 0 >= 2
    returning q.state, q.node, q.checkpoint, said.*
), begun_from as materialized (
    select tenant, id, checkpoint from gone where checkpoint is not null
), needed_no_more as (
    delete from blob_use u using begun_from
    where u.pool = $1 and u.tenant = begun_from.tenant and u.digest = begun_from.checkpoint and u.id = begun_from.id
), ended as (
    insert into attempt (pool, tenant, id, attempt, outcome, status, node, exit_code, log_bytes, started_at, finished_at,
                         code, message, result, usage, tail)
    select $1, tenant, id, attempt, outcome, case when state = 4 and status = 3 then 4 else status end, node, exit_code,
           log_bytes, clock_now() - ran_ms * interval '1 millisecond', clock_now(),
           case when state = 4 and status = 3 then 'cancelled' else code end,
           case when state = 4 and status = 3 then 'cancelled while it ran' else message end, result, usage, tail
    from gone
    returning tenant, id, attempt, status, outcome, code, message
), told as (
    insert into event (pool, tenant, id, kind, status, attempt, code, message)
    select $1, tenant, id, case when status = 4 then 'cancelled' when outcome = 2 then 'cap_exceeded' else 'failed' end,
           status, attempt, code, message
    from ended where status > 2
)
select tenant, id, attempt, status from ended

-- name: try_again
-- Ends attempts whose task gets another one after a delay. What was being cancelled ends here instead.
with said as materialized (
    select $1::smallint as pool, s.* from unnest($2::int[], $3::bigint[], $4::smallint[], $5::smallint[], $6::bigint[], $7::int[], $8::bigint[],
                         $9::text[], $10::text[], $11::json[], $12::bytea[], $13::bigint[], $14::smallint[],
                         $15::int[])
        as s (tenant, id, attempt, outcome, ran_ms, exit_code, log_bytes, code, message, usage, tail, delay_ms, failure,
              node)
), mine as materialized (
    select said.*, q.state from said
    join queue q on q.pool = any(array[said.pool]) and q.tenant = said.tenant and q.id = said.id
                and q.attempt = said.attempt and q.state + 0 >= 2
    for update of q
), again as (
    update queue q
    set state = case when mine.state in (6, 7) then -1 else 0 end, node = null, epoch = null, claimed_at = null,
        started_at = null, leaves = false, used_ms = 0, failures = q.failures + mine.failure, losses = q.losses + 1 - mine.failure,
        eligible_at = clock_now() + mine.delay_ms * interval '1 millisecond',
        start_by = clock_now() + mine.delay_ms * interval '1 millisecond' + (q.start_by - q.eligible_at)
    from mine
    where q.pool = any(array[mine.pool]) and q.tenant = mine.tenant and q.id = mine.id and mine.state in (2, 3, 5, 6, 7)
    returning null::smallint as status, mine.*
), cancelled as (
    delete from queue q using mine
    where q.pool = any(array[mine.pool]) and q.tenant = mine.tenant and q.id = mine.id and mine.state = 4
    returning 4::smallint as status, mine.*
), ended as (
    insert into attempt (pool, tenant, id, attempt, outcome, status, node, exit_code, log_bytes, started_at, finished_at,
                         code, message, usage, tail)
    select $1, tenant, id, attempt, outcome, status, node, exit_code, log_bytes,
           clock_now() - ran_ms * interval '1 millisecond', clock_now(),
           case when status = 4 then 'cancelled' else code end,
           case when status = 4 then 'cancelled while it ran' else message end, usage, tail
    from (select * from again union all select * from cancelled) as over
    returning tenant, id, attempt, status, outcome, code, message
), told as (
    insert into event (pool, tenant, id, kind, status, attempt, code, message)
    select $1, tenant, id, case when status = 4 then 'cancelled' when outcome = 2 then 'cap_exceeded' else 'retried' end,
           status, attempt, code, message
    from ended
)
select tenant, id, attempt, status from ended

-- name: cancel
-- What waits is cancelled on the spot; what a node owns is marked, and its leader stops it. The whole claim is set again:
-- PostgreSQL checks constraints before it notices that a row it waited for is another one by now.
with wanted as materialized (
    select $1::smallint as pool, $2::int as tenant, w.* from unnest($3::bigint[]) as w (id)
), found as materialized (
    select wanted.*, q.state, q.attempt, q.node, q.epoch, q.claimed_at from wanted
    join queue q on q.pool = any(array[wanted.pool]) and q.tenant = wanted.tenant and q.id = wanted.id
    for update of q
), waiting as (
    delete from queue q using found
    where q.pool = any(array[found.pool]) and q.tenant = found.tenant and q.id = found.id and found.state in (-1, 0, 1)
    returning q.id, q.checkpoint
), begun_from as materialized (
    select id, checkpoint from waiting where checkpoint is not null
), needed_no_more as (
    delete from blob_use u using begun_from
    where u.pool = $1 and u.tenant = $2 and u.digest = begun_from.checkpoint and u.id = begun_from.id
), outcome as (
    insert into attempt (pool, tenant, id, attempt, outcome, status, finished_at, code, message)
    select $1, $2, id, 0, 3, 4, clock_now(), 'cancelled', 'cancelled while it waited' from waiting
), told as (
    insert into event (pool, tenant, id, kind, status, attempt, code, message)
    select $1, $2, id, 'cancelled', 4, 0, 'cancelled', 'cancelled while it waited' from waiting
), owned as (
    update queue q
    set state = 4, attempt = found.attempt, node = found.node, epoch = found.epoch, claimed_at = found.claimed_at
    from found
    where q.pool = any(array[found.pool]) and q.tenant = found.tenant and q.id = found.id and found.state in (2, 3, 5, 6, 7)
    returning q.id, q.attempt, q.node
)
select id, null::smallint as attempt, null::int as node from waiting
union all
select id, attempt, node from owned

-- name: promote_due
-- Makes ready what was scheduled for an hour that has come.
with due as materialized (
    select pool, tenant, id from queue where pool = $1 and state = 0 and eligible_at <= clock_now()
    order by eligible_at limit $2
)
update queue q set state = 1
from due
where q.pool = any(array[due.pool]) and q.tenant = due.tenant and q.id = due.id and q.state + 0 = 0
returning q.tenant, q.id, q.lane, q.shape, extract(epoch from q.start_by)::float8 as start_by, q.execution_cap_ms

-- name: next_due
-- Seconds until the next scheduled task is due; no row when none is scheduled.
select extract(epoch from eligible_at - clock_now())::float8 as seconds
from queue where pool = $1 and state = 0 order by eligible_at limit 1

-- name: ready_keys
-- Which (tenant, lane, shape) have ready tasks: one index probe each, however deep the backlog.
with recursive key as (
    (select tenant, lane, shape from queue where pool = $1 and state = 1 order by tenant, lane, shape limit 1)
    union all
    select next.tenant, next.lane, next.shape
    from key cross join lateral (
        select tenant, lane, shape from queue
        where pool = $1 and state = 1 and (tenant, lane, shape) > (key.tenant, key.lane, key.shape)
        order by tenant, lane, shape limit 1
    ) as next
)
select tenant, lane, shape from key

-- name: ready_after
-- The first ready tasks of each key behind the last one already known, in the order they are due to start.
select key.tenant, key.lane, key.shape, r.id, extract(epoch from r.start_by)::float8 as start_by, r.execution_cap_ms
from unnest($2::int[], $3::smallint[], $4::bigint[], $5::float8[], $6::bigint[], $7::bigint[])
    as key (tenant, lane, shape, start_by, cap_ms, id)
cross join lateral (
    select q.id, q.start_by, q.execution_cap_ms from queue q
    where q.pool = $1 and q.state = 1 and q.tenant = key.tenant and q.lane = key.lane and q.shape = key.shape
      and (q.start_by, q.execution_cap_ms, q.id) > (to_timestamp(key.start_by), key.cap_ms, key.id)
    order by q.start_by, q.execution_cap_ms, q.id limit $8
) as r

-- name: ready_depths
-- How many ready tasks there are of each key behind the last one known, counted up to a bound.
select key.tenant, key.lane, key.shape, r.tasks
from unnest($2::int[], $3::smallint[], $4::bigint[], $5::float8[], $6::bigint[], $7::bigint[])
    as key (tenant, lane, shape, start_by, cap_ms, id)
cross join lateral (
    select count(*) as tasks from (
        select from queue q
        where q.pool = $1 and q.state = 1 and q.tenant = key.tenant and q.lane = key.lane and q.shape = key.shape
          and (q.start_by, q.execution_cap_ms, q.id) > (to_timestamp(key.start_by), key.cap_ms, key.id)
        order by q.start_by, q.execution_cap_ms, q.id limit $8
    ) as behind
) as r

-- name: owned
-- All attempts that nodes own, for a leader that takes over.
select tenant, id, attempt, node, state, shape, execution_cap_ms, failures, losses, max_attempts
from queue where pool = $1 and state >= 2 order by tenant, id

-- name: tries
-- What decides whether a failed attempt is followed by another.
with wanted as materialized (
    select $1::smallint as pool, w.* from unnest($2::int[], $3::bigint[]) as w (tenant, id)
)
select q.tenant, q.id, q.failures, q.losses, q.max_attempts, t.spec
from wanted
join queue q on q.pool = any(array[wanted.pool]) and q.tenant = wanted.tenant and q.id = wanted.id
join task t on t.pool = any(array[wanted.pool]) and t.tenant = wanted.tenant and t.id = wanted.id

-- name: named
-- Of the next $6 unfinished tasks of a tenant behind $3 those with one of the names $4 or that begin with one of $5, and
-- how far that was (null at the end).
with part as materialized (
    select q.pool, q.tenant, q.id, q.shape from queue q
    where q.pool = $1 and q.tenant = $2 and q.id > $3 order by q.id limit $6
)
select seen.last, found.id, found.shape, found.name
from (select max(id) as last from part) as seen
left join lateral (
    select part.id, part.shape, t.name
    from part join task t on t.pool = any(array[part.pool]) and t.tenant = part.tenant and t.id = part.id
    where t.name = any($4::text[]) or exists (select from unnest($5::text[]) as beginning where starts_with(t.name, beginning))
) as found on true

-- name: reshape
-- Gives unfinished tasks other shapes, as a paused name asks for; what is ready comes back with its new line.
with moved as materialized (
    select $1::smallint as pool, $2::int as tenant, m.* from unnest($3::bigint[], $4::bigint[]) as m (id, shape)
), changed as (
    update queue q set shape = moved.shape from moved
    where q.pool = any(array[moved.pool]) and q.tenant = moved.tenant and q.id = moved.id
    returning q.tenant, q.id, q.state, q.lane, q.shape, q.start_by, q.execution_cap_ms
)
select tenant, id, lane, shape, extract(epoch from start_by)::float8 as start_by, execution_cap_ms
from changed where state = 1
