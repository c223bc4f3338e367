-- How closed in a node can run tasks, and what it cannot do as well as others, with the reasons, as it said last.

alter table node
    add column profiles json not null default '[]',
    add column degraded json not null default '{}';
