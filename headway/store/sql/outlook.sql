-- name: write_outlook
-- By the leader of this epoch, or of a later one; with no body, what is written is still so.
insert into outlook as o (pool, epoch, written_at, body)
select $1, $2, clock_now(), coalesce($3::json, '{}') where exists (select from leadership where pool = $1 and epoch = $2)
on conflict (pool) do update
set epoch = $2, written_at = clock_now(), body = coalesce($3::json, o.body)
where o.epoch <= $2

-- name: read_outlook
-- The last outlook of a pool, how old it is, and whether anybody leads the pool now; the body only if it is not the one
-- written at that time by that epoch.
select l.epoch as leading, o.epoch, o.written_at,
       case when o.written_at is distinct from $2 or o.epoch is distinct from $3 then o.body end as body
from pool p
left join leadership l on l.pool = p.pool and l.lease_until >= clock_now()
left join outlook o on o.pool = p.pool
where p.pool = $1
