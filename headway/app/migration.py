"""`headway migrate`: the schema, brought to this program's version."""

from __future__ import annotations

import asyncio
import sys

import asyncpg

from headway.store.database import GONE
from headway.store.migrate import MigrationFault, migrate


def bring_up_to_date(database_url: str) -> int:
    """Applies what is missing and says what it was; 1 with a reason when it cannot."""
    try:
        applied = asyncio.run(migrate(database_url))
    except MigrationFault as fault:
        return _refuse(str(fault))
    except (*GONE, asyncpg.PostgresError) as fault:
        return _refuse(f"the database did not take the migration: {fault}. Check the URL and the user's rights.")
    sys.stdout.write("\n".join(applied or ["the schema is up to date"]) + "\n")
    return 0


def _refuse(why: str) -> int:
    sys.stderr.write(f"headway migrate: {why}\n")
    return 1
