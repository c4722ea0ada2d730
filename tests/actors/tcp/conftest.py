import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio


@pytest_asyncio.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    """Fail a test that leaves a task behind in its loop."""
    yield
    assert asyncio.all_tasks() == {asyncio.current_task()}
