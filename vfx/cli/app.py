"""The commands of `vfx`, without what they do: nothing here is loaded that only one of them needs."""

import difflib
from typing import Annotated, Any, Never

import typer
from typer.core import TyperGroup

from vfx import __version__
from vfx.cli import eval as eval_command
from vfx.cli import model
from vfx.errors import ConfigError, Mistake

__all__ = ["app"]


class _Commands(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            _refuse(args[0], list(self.commands))
        return super().resolve_command(ctx, args)


def _refuse(name: str, known: list[str]) -> Never:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    raise ConfigError(Mistake(f"there is no command {name!r}", "", hint))


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Evaluate language-model agents: any program, any OpenAI-compatible endpoint, every turn in a trace.",
)


def _show_version(value: bool) -> None:  # noqa: FBT001 - typer's signature
    if value:
        typer.echo(f"vfx {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Holds the options that go before a command."""


app.command("eval", cls=eval_command.EvalCommand, short_help="Run an evaluation.")(eval_command.command)
app.add_typer(model.app, name="model")
