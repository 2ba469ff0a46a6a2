"""`vfx model`: fetch the embedded model, and say what is there."""

import importlib.metadata
from typing import TYPE_CHECKING

import typer

from vfx.cli.group import Commands

if TYPE_CHECKING:
    from vfx._concurrency import Shutdown

__all__ = ["app"]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="The embedded model: small, free, offline.",
)


@app.command(short_help="Fetch the embedded model (93 MB, once).")
def install() -> None:
    """Fetch the embedded model (93 MB, once); checks it when it is there already."""
    # Everything here is loaded by the command itself, so that `vfx --help` stays quick.
    import anyio  # noqa: PLC0415

    raise typer.Exit(anyio.run(_install))


@app.command(short_help="Say what is installed.")
def status() -> None:
    """Say where the embedded model is, whether it is whole, and which version of xllamacpp serves it."""
    from vfx.clients import local_model  # noqa: PLC0415

    model, path = local_model.SMOLLM2, local_model.model_path()
    if not path.is_file():
        size, verified = "-", "not installed: `vfx model install` fetches it"
    else:
        size = f"{path.stat().st_size / 1e6:.1f} MB"
        is_whole = local_model.is_whole(path, model.sha256)
        verified = "yes" if is_whole else "no, the file is damaged: run `vfx model install` again"
    try:
        server = importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        server = "not installed: pip install 'vfx[local]'"
    rows = {"model": model.alias, "path": str(path), "size": size, "verified": verified, "xllamacpp": server}
    for name, value in rows.items():
        typer.echo(f"{name:<10} {value}")
    raise typer.Exit(0 if "yes" in verified and server[0].isdigit() else 1)


async def _install() -> int:
    from vfx._concurrency import shutdown_on_signals  # noqa: PLC0415
    from vfx.clients import local_model  # noqa: PLC0415
    from vfx.errors import RunError, root_cause  # noqa: PLC0415

    code = 1
    try:
        async with shutdown_on_signals(_announce) as shutdown:
            await local_model.install(_say)
            code = 0
    except (RunError, BaseExceptionGroup) as error:
        cause = root_cause(error)
        if not isinstance(cause, RunError):
            raise
        _say(f"vfx: {cause}")
        return 1
    return code if shutdown.exit_code is None else shutdown.exit_code


def _announce(shutdown: "Shutdown") -> None:
    _say("stopping" if not shutdown.is_forced else "stopping at once")


def _say(line: str) -> None:
    typer.echo(line, err=True)
