-- What is done to a task between its submission and its end: change, pause, resume, freeze, thaw, give way. As in
-- queue.sql, each locks the row first and asks the locked row; the whole claim is set again, because PostgreSQL checks
-- constraints before it notices that a row it waited for is another one by now.

-- name: change
-- Other bounds for an unfinished task; null: as it is. It becomes another line of the queue when it is urgent now, or not
-- any more ($7: the lane of a task that was), or is to wait in another lane ($9). `changed` tells its leader.
with found as materialized (
    select pool, tenant, id, state, attempt, node, epoch, claimed_at,
           coalesce($5::bigint, (extract(epoch from start_by - eligible_at) * 1000)::bigint) as tolerance_ms
    from queue where pool = $1 and tenant = $2 and id = $3 for update
), changed as (
    update queue q
    set execution_cap_ms = coalesce($4::bigint, q.execution_cap_ms),
        start_by = case when $5::bigint is null then q.start_by
                        else q.eligible_at + found.tolerance_ms * interval '1 millisecond' end,
        lane = case when found.tolerance_ms <= $6::bigint then 0 when $9::smallint is not null then $9
                    when q.lane = 0 then $7::smallint else q.lane end,
        changed = true, state = found.state, attempt = found.attempt, node = found.node, epoch = found.epoch,
        claimed_at = found.claimed_at
    from found
    where q.pool = found.pool and q.tenant = found.tenant and q.id = found.id
    returning q.pool, q.tenant, q.id, q.lane, q.execution_cap_ms
), kept as (
    update task t
    set execution_cap_ms = changed.execution_cap_ms, lane = changed.lane,
        delay_tolerance_ms = coalesce($5::bigint, t.delay_tolerance_ms), cap_grace_ms = coalesce($8::int, t.cap_grace_ms)
    from changed
    where t.pool = changed.pool and t.tenant = changed.tenant and t.id = changed.id
)
select id from changed

-- name: changes
-- What was changed and not taken in by its leader.
select q.tenant, q.id, q.attempt, q.state, q.node, q.lane, q.shape, extract(epoch from q.start_by)::float8 as start_by,
       q.execution_cap_ms, q.used_ms, t.cap_grace_ms
from queue q join task t on t.pool = q.pool and t.tenant = q.tenant and t.id = q.id
where q.pool = $1 and q.changed order by q.tenant, q.id limit $2

-- name: taken_in
-- The leader has taken these changes in; one that was changed again in between comes again.
with heeded as materialized (
    select $1::smallint as pool, h.*
    from unnest($2::int[], $3::bigint[], $4::bigint[], $5::float8[]) as h (tenant, id, cap_ms, start_by)
)
update queue q set changed = false from heeded
where q.pool = any(array[heeded.pool]) and q.tenant = heeded.tenant and q.id = heeded.id
  and q.execution_cap_ms = heeded.cap_ms and extract(epoch from q.start_by)::float8 = heeded.start_by

-- name: pause
-- What waits takes no part any more; what a node owns is to stand still there, or ($5) to leave it with a checkpoint, and
-- its leader sees to it.
with found as materialized (
    select pool, tenant, id, state, attempt, node, epoch, claimed_at from queue
    where pool = $1 and tenant = $2 and id = $3 for update
), paused as (
    update queue q
    set state = case when found.state in (0, 1) then -1 when found.state in (5, 7) then 7 else 6 end,
        leaves = $5::boolean and found.state > 1, attempt = found.attempt,
        node = found.node, epoch = found.epoch, claimed_at = found.claimed_at
    from found
    where q.pool = found.pool and q.tenant = found.tenant and q.id = found.id
      and (found.state in (0, 1, 2, 3, 5) or ($5 and found.state in (6, 7)))
    returning q.tenant, q.id, q.attempt, q.node, q.state, found.state as before
), told as (
    insert into event (pool, tenant, id, kind, attempt, code, message)
    select $1, tenant, id, 'paused', attempt, 'paused', $4
    from paused where state <> 6 and before <> 7
)
select id, state from paused

-- name: resume
-- What was paused takes part again. The time it stood does not count against its tolerance.
with found as materialized (
    select pool, tenant, id, state, attempt, node, epoch, claimed_at, eligible_at, start_by from queue
    where pool = $1 and tenant = $2 and id = $3 for update
), resumed as (
    update queue q
    set state = case found.state when -1 then 0 when 6 then 3 else 5 end, leaves = false, attempt = found.attempt,
        node = found.node, epoch = found.epoch, claimed_at = found.claimed_at,
        eligible_at = case when found.state = -1 then greatest(found.eligible_at, clock_now()) else q.eligible_at end,
        start_by = case when found.state = -1
                        then greatest(found.eligible_at, clock_now()) + (found.start_by - found.eligible_at)
                        else q.start_by end
    from found
    where q.pool = found.pool and q.tenant = found.tenant and q.id = found.id and found.state in (-1, 6, 7)
    returning q.tenant, q.id, q.attempt, q.state
), told as (
    insert into event (pool, tenant, id, kind, attempt, code, message)
    select $1, tenant, id, 'resumed', attempt, 'resumed', $4
    from resumed
)
select id, state from resumed

-- name: freeze
-- Its node says that an attempt stands still.
with said as materialized (
    select $1::smallint as pool, s.* from unnest($2::int[], $3::bigint[], $4::smallint[], $5::text[])
        as s (tenant, id, attempt, why)
), found as materialized (
    select said.*, q.state, q.node, q.epoch, q.claimed_at from said
    join queue q on q.pool = any(array[said.pool]) and q.tenant = said.tenant and q.id = said.id
                and q.attempt = said.attempt
    for update of q
), frozen as (
    update queue q
    set state = case when found.state = 6 then 7 else 5 end, node = found.node, epoch = found.epoch,
        claimed_at = found.claimed_at, pauses = case when found.state = 6 then q.pauses else q.pauses + 1 end
    from found
    where q.pool = any(array[found.pool]) and q.tenant = found.tenant and q.id = found.id
      and q.attempt = found.attempt and found.state in (2, 3, 6)
    returning q.tenant, q.id, q.attempt, q.state, found.why
), told as (
    insert into event (pool, tenant, id, kind, attempt, code, message)
    select $1, tenant, id, case when state = 7 then 'paused' else 'preempted' end, attempt,
           case when state = 7 then 'paused' else 'preempted' end,
           case when state = 7 then 'as asked, it stands still on its node' else why end
    from frozen
)
select tenant, id, attempt, state from frozen

-- name: thaw
-- Its node says that an attempt goes on.
with said as materialized (
    select $1::smallint as pool, s.* from unnest($2::int[], $3::bigint[], $4::smallint[]) as s (tenant, id, attempt)
), found as materialized (
    select said.*, q.state, q.node, q.epoch, q.claimed_at from said
    join queue q on q.pool = any(array[said.pool]) and q.tenant = said.tenant and q.id = said.id
                and q.attempt = said.attempt
    for update of q
), thawed as (
    update queue q
    set state = case when found.state = 7 then 6 else 3 end, node = found.node, epoch = found.epoch,
        claimed_at = found.claimed_at
    from found
    where q.pool = any(array[found.pool]) and q.tenant = found.tenant and q.id = found.id
      and q.attempt = found.attempt and found.state in (5, 7)
    returning q.tenant, q.id, q.attempt, q.state
), told as (
    insert into event (pool, tenant, id, kind, attempt, code, message)
    select $1, tenant, id, 'resumed', attempt, 'resumed', 'goes on where it stood still'
    from thawed where state = 3
)
select tenant, id, attempt, state from thawed

-- name: give_way
-- Ends attempts that wrote a checkpoint and left: the task waits for another one, on any node, which costs it nothing. What
-- was to be paused is; what was being cancelled ends here. What it ran counts against its cap.
with said as materialized (
    select $1::smallint as pool, s.* from unnest($2::int[], $3::bigint[], $4::smallint[], $5::bigint[], $6::int[],
                         $7::bigint[], $8::text[], $9::text[], $10::json[], $11::bytea[], $12::int[])
        as s (tenant, id, attempt, ran_ms, exit_code, log_bytes, code, message, usage, tail, node)
), mine as materialized (
    select said.*, q.state from said
    join queue q on q.pool = any(array[said.pool]) and q.tenant = said.tenant and q.id = said.id
                and q.attempt = said.attempt and q.state + 0 >= 2
    for update of q
), again as (
    update queue q
    set state = case when mine.state in (6, 7) then -1 else 0 end, node = null, epoch = null, claimed_at = null,
        started_at = null, leaves = false, used_ms = q.used_ms + mine.ran_ms, pauses = least(q.pauses + 1, 32767),
        eligible_at = clock_now(), start_by = clock_now() + (q.start_by - q.eligible_at)
    from mine
    where q.pool = any(array[mine.pool]) and q.tenant = mine.tenant and q.id = mine.id
      and mine.state in (2, 3, 5, 6, 7)
    returning null::smallint as status, mine.*
), cancelled as (
    delete from queue q using mine
    where q.pool = any(array[mine.pool]) and q.tenant = mine.tenant and q.id = mine.id and mine.state = 4
    returning 4::smallint as status, mine.*
), ended as (
    insert into attempt (pool, tenant, id, attempt, outcome, status, node, exit_code, log_bytes, started_at, finished_at,
                         code, message, usage, tail)
    select $1, tenant, id, attempt, 5, status, node, exit_code, log_bytes,
           clock_now() - ran_ms * interval '1 millisecond', clock_now(),
           case when status = 4 then 'cancelled' else code end,
           case when status = 4 then 'cancelled while it ran' else message end, usage, tail
    from (select * from again union all select * from cancelled) as over
    returning tenant, id, attempt, status, code, message
), told as (
    insert into event (pool, tenant, id, kind, status, attempt, code, message)
    select $1, ended.tenant, ended.id,
           case when ended.status = 4 then 'cancelled' when mine.state in (6, 7) then 'paused'
                when ended.code = 'preempted' then 'preempted' else 'checkpointed' end,
           ended.status, ended.attempt, ended.code, ended.message
    from ended join mine on mine.tenant = ended.tenant and mine.id = ended.id
)
select tenant, id, attempt, status from ended

-- name: keep_checkpoint
-- What the next attempt begins from, said by the attempt that still owns the task; its blob is there, and is needed now
-- in place of the last one.
with owner as materialized (
    select pool, tenant, id, checkpoint as before from queue
    where pool = $1 and tenant = $2 and id = $3 and attempt = $4 and state + 0 >= 2 for update
), found as (
    update blob b set used_at = clock_now() from owner
    where b.pool = owner.pool and b.tenant = owner.tenant and b.digest = $5
    returning b.digest
), noted as (
    insert into blob_use (pool, tenant, digest, id) select $1, $2, digest, $3 from found on conflict do nothing
), released as (
    delete from blob_use u using owner, found
    where u.pool = owner.pool and u.tenant = owner.tenant and u.digest = owner.before and u.digest <> found.digest
      and u.id = owner.id
)
update queue q set checkpoint = found.digest from owner, found
where q.pool = owner.pool and q.tenant = owner.tenant and q.id = owner.id
returning q.id

-- name: stays
-- An attempt that was to leave its node does not.
update queue set leaves = false where pool = $1 and tenant = $2 and id = $3 and attempt = $4 and leaves
returning state

-- name: ordered
-- What a node owns and was told, or is to be told, something about: it is being cancelled, or stands still or shall, or
-- is to leave.
select tenant, id, attempt, node, state, leaves from queue
where pool = $1 and state >= 4 order by tenant, id limit $2
