-- Whether all sandboxed tasks of a tenant, or of a plan's tenants, get sandboxes in which nothing ever ran.

alter table plan add column fresh boolean not null default false;
alter table tenant add column fresh boolean not null default false;

update accounts_version set version = version + 1 where one = 1;
