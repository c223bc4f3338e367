-- Whether tasks may have the node's network in their sandboxes.

alter table plan add column network boolean not null default false;

update accounts_version set version = version + 1 where one = 1;
