-- name: after
-- A tenant's events behind a place, oldest first: of all its tasks, or of one. What a transaction under way could still
-- come before is not shown yet.
select e.tx::text as tx, seq, at, id, kind, status, attempt, code, message from event e
where pool = $1 and tenant = $2 and (e.tx, seq) > ($3::text::xid8, $4::bigint)
  and e.tx < pg_snapshot_xmin(pg_current_snapshot())
  and ($5::bigint is null or id = $5) and ($6::text[] is null or kind = any($6))
order by e.tx, seq limit $7

-- name: last
-- The last thing of some kinds that happened to a task.
select kind, code, message, at from event
where pool = $1 and tenant = $2 and id = $3 and kind = any($4::text[])
order by tx desc, seq desc limit 1

-- name: now
-- Where a reader is to begin that wants what happens from now on. A transaction under way counts as to come.
select pg_snapshot_xmin(pg_current_snapshot())::text as tx
