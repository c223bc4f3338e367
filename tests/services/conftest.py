"""What most tests of services begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.services.serving import Serving, a_server


@pytest.fixture
async def serving(database_url: str, tmp_path: Path) -> AsyncIterator[Serving]:
    """A server on a fresh database."""
    async with a_server(database_url, tmp_path) as serving:
        yield serving
