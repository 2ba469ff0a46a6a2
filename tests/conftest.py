import pytest


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that vfx runs on."""
    return "asyncio", {"use_uvloop": True}
