"""`vfx eval`: from the arguments to a run. What takes time to load is loaded once it is known to be needed."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from vfx.errors import ConfigError
from vfx.redaction import redact

if TYPE_CHECKING:
    from vfx.cli.invocation import Invocation

__all__ = ["EvalCommand", "command"]


class EvalCommand(TyperCommand):
    """Hands the arguments over as they are: options follow from models that are not loaded yet."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leave everything unparsed."""
        ctx.args = list(args)
        return ctx.args

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offer options and values by the models."""
        from vfx.cli.completion import complete  # noqa: PLC0415

        return list(complete(self.name or "", ctx.args, incomplete))


def command(ctx: typer.Context) -> None:
    """Run an evaluation."""
    argv = list(ctx.args)
    flags = argv[: argv.index("--")] if "--" in argv else argv
    if any(word in ("-h", "--help", "--help-all", "--help_all") for word in flags):
        from vfx.cli.help import help_text  # noqa: PLC0415

        text, mistakes = help_text(argv, os.environ)
        typer.echo(text)
        if mistakes:
            raise ConfigError(*mistakes)
        return
    invocation = _invocation(argv)
    if invocation.dry_run:
        from vfx.cli.render import dry_run_lines  # noqa: PLC0415

        typer.echo(redact("\n".join(dry_run_lines(invocation.config, invocation.sources))))
        return
    from vfx.cli.display import run_eval  # noqa: PLC0415

    raise typer.Exit(run_eval(invocation))


def _invocation(argv: list[str]) -> "Invocation":
    from vfx.cli.invocation import Invocation  # noqa: PLC0415
    from vfx.cli.resolve import resolve  # noqa: PLC0415

    resolved = resolve(argv, os.environ)
    switches = resolved.switches
    return Invocation(
        config=resolved.config,
        sources=resolved.sources,
        dry_run="dry-run" in switches,
        as_json="json" in switches,
        replace="replace" in switches,
        resume=Path(resolved.folder) if "resume" in switches and resolved.folder else None,
        is_demo=resolved.is_demo,
    )
