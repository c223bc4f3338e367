-- What attempts left, as one archive each.

-- name: keep_artifacts
-- Notes what an attempt left; said again it is the same. What is not a blob of the tenant is not noted.
with there as (
    update blob set used_at = clock_now() where pool = $1 and tenant = $2 and digest = $5 returning digest
), used as (
    insert into blob_use (pool, tenant, digest, id) select $1, $2, digest, $3 from there on conflict do nothing
)
insert into artifact (pool, tenant, id, attempt, digest, bytes, files, manifest)
select $1, $2, $3, $4, digest, $6, $7, $8 from there on conflict do nothing

-- name: artifacts
select attempt, digest, bytes, files, manifest from artifact
where pool = $1 and tenant = $2 and id = $3 and attempt = $4
