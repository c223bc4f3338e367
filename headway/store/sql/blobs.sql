-- Blobs: content by its digest, each of one tenant.

-- name: find_blob
select size, body, place from blob where pool = $1 and tenant = $2 and digest = $3

-- name: touch_blob
-- Finds a blob, and keeps it for a grace time from now on: whoever was told that it is here need not upload it.
update blob set used_at = clock_now() where pool = $1 and tenant = $2 and digest = $3 returning size

-- name: use_blobs
-- Notes that tasks of a slice, or one task, need these blobs; answers which of them there are.
with found as (
    update blob set used_at = clock_now() where pool = $1 and tenant = $2 and digest = any($3::text[]) returning digest
), noted as (
    insert into blob_use (pool, tenant, digest, id) select $1, $2, digest, $4 from found on conflict do nothing
)
select digest from found

-- name: release_blob
-- A task needs a blob no more.
delete from blob_use where pool = $1 and tenant = $2 and digest = $3 and id = $4

-- name: total
select bytes from blob_total where pool = $1 and tenant = $2

-- name: keep_small_blob
-- Keeps a small blob in its row; what is there already stays.
with fresh as (
    insert into blob (pool, tenant, digest, size, body) values ($1, $2, $3, length($4::bytea), $4)
    on conflict (pool, tenant, digest) do update set used_at = clock_now()
    returning size, xmax = 0 as is_new
)
insert into blob_total (pool, tenant, bytes) select $1, $2, size from fresh where is_new
on conflict (pool, tenant) do update set bytes = blob_total.bytes + excluded.bytes

-- name: begin_upload
-- Names an object before there is anything at its place.
insert into blob_garbage (pool, place, goes_at) values ($1, $2, clock_now() + $3::float8 * interval '1 second')

-- name: end_upload
-- Makes an object that arrived whole its tenant's blob. When there is one of that digest already, the new object stays
-- garbage; when it is garbage no more, it took too long and is gone.
with arrived as (
    select place from blob_garbage where pool = $1 and place = $5 and goes_at > clock_now() for update
), fresh as (
    insert into blob (pool, tenant, digest, size, place) select $1, $2, $3, $4, place from arrived
    on conflict (pool, tenant, digest) do update set used_at = clock_now()
    returning place
), named as (
    delete from blob_garbage g using fresh f where g.pool = $1 and g.place = $5 and f.place = $5 returning 1
), counted as (
    insert into blob_total (pool, tenant, bytes) select $1, $2, $4 from named
    on conflict (pool, tenant) do update set bytes = blob_total.bytes + excluded.bytes
)
select place from fresh

-- name: drop_upload
-- An upload failed: its object goes at once.
update blob_garbage set goes_at = clock_now() where pool = $1 and place = $2

-- name: spare_used
-- Looks at the blobs nobody was told of for a grace time: those in use are looked at again after another one.
update blob b set used_at = clock_now()
where b.pool = $1 and (b.tenant, b.digest) in (
    select i.tenant, i.digest from blob i
    where i.pool = $1 and i.used_at < clock_now() - $2::float8 * interval '1 second'
        and exists (select from blob_use u where u.pool = i.pool and u.tenant = i.tenant and u.digest = i.digest)
    order by i.used_at limit $3 for update skip locked
)
returning 1

-- name: drop_unused
-- Blobs that nothing needs are none any more; their objects go. Whoever asks for one again touches its row first, and a
-- row that was touched meanwhile is not dropped.
with dead as (
    delete from blob b
    where b.pool = $1 and b.used_at < clock_now() - $2::float8 * interval '1 second' and (b.tenant, b.digest) in (
        select i.tenant, i.digest from blob i
        where i.pool = $1 and i.used_at < clock_now() - $2::float8 * interval '1 second'
            and not exists (select from blob_use u where u.pool = i.pool and u.tenant = i.tenant and u.digest = i.digest)
        order by i.used_at limit $3 for update skip locked
    )
    returning b.tenant, b.size, b.place
), less as (
    update blob_total t set bytes = t.bytes - d.size
    from (select tenant, sum(size)::bigint as size from dead group by tenant) d
    where t.pool = $1 and t.tenant = d.tenant
), thrown as (
    insert into blob_garbage (pool, place, goes_at) select $1, place, clock_now() from dead where place is not null
)
select count(*) from dead

-- name: due_garbage
select place from blob_garbage where pool = $1 and goes_at <= clock_now() order by goes_at limit $2

-- name: forget_garbage
-- The object is gone.
delete from blob_garbage where pool = $1 and place = any($2::text[])

-- name: make_signing_secret
insert into signing_secret (single, secret) values (1, $1) on conflict do nothing

-- name: signing_secret
select secret from signing_secret
