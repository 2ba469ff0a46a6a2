import subprocess
import sys

import httpx
import pytest

from tests.interception.stage import BODY, new_session
from vfx.clients.base import ScriptedSettings
from vfx.clients.scripted import ScriptedClient
from vfx.interception.base import (
    ElasticSettings,
    InterceptionSettings,
    ServerSettings,
    StaticSettings,
    create_interception,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("settings", [ServerSettings(), StaticSettings(), ElasticSettings()])
async def test_every_shape_serves_alike(settings: InterceptionSettings) -> None:
    interception = create_interception(settings, ScriptedClient(ScriptedSettings()))
    session = new_session()
    async with interception.serving():
        async with interception.acquire(session) as slot, httpx.AsyncClient(trust_env=False) as http:
            assert slot.base_url.endswith("/v1")
            headers = {"Authorization": f"Bearer {slot.api_key}"}
            url = f"{slot.base_url}/chat/completions"
            assert (await http.post(url, json=BODY, headers=headers)).status_code == 200
        async with httpx.AsyncClient(trust_env=False) as http:
            assert (await http.post(url, json=BODY, headers=headers)).status_code == 401
    assert session.trace.num_turns == 1
    assert (interception.num_servers, interception.peak_servers) == (0, 1)


def test_settings_load_no_server() -> None:
    code = "import sys, vfx.interception.base; print({'uvicorn', 'aiohttp', 'httptools'} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
