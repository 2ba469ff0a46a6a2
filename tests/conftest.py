import pytest
from hypothesis import settings

# Machines are shared: how long one example takes says nothing.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that vfx runs on."""
    return "asyncio", {"use_uvloop": True}
