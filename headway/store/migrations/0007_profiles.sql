-- Profiles are enforced from here on, and tasks are shut in unless somebody says otherwise. What tiers said before meant
-- nothing, so those that said nothing else are closed, too.

alter table tier alter column profile set default 'sandboxed';
update tier set profile = 'sandboxed' where profile = 'trusted';

-- What tasks may ask for although the profile of their tier is stricter.
alter table plan add column profiles text[] not null default '{}'
    check (profiles <@ array['trusted', 'sandboxed', 'container', 'hostile']);

update accounts_version set version = version + 1 where one = 1;
