-- A piece of a log says at which byte of the output it begins, and no more which piece it is: so a reader goes on at a
-- byte, and what was dropped shows. In two steps, that no piece meets the place of another: first below zero, then above.

alter table log alter column sequence type bigint;
alter table log rename column sequence to at;

update log l set at = -1 - p.at
from (
    select pool, tenant, id, attempt, at as piece,
           coalesce(sum(length(body)) over (partition by pool, tenant, id, attempt order by at
                                            rows between unbounded preceding and 1 preceding), 0) as at
    from log
) p
where (l.pool, l.tenant, l.id, l.attempt, l.at) = (p.pool, p.tenant, p.id, p.attempt, p.piece);
update log set at = -1 - at;
