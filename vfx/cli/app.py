"""The commands of `vfx`, without what they do: nothing here is loaded that only one of them needs."""

from typing import Annotated

import typer

from vfx import __version__
from vfx.cli import eval as eval_command
from vfx.cli import init, model, replay, validate
from vfx.cli import list as list_command
from vfx.cli.group import Commands

__all__ = ["app"]


app = typer.Typer(
    cls=Commands,
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
app.command("validate", cls=eval_command.EvalCommand, short_help="Check an environment's tasks without a model.")(
    validate.command
)
app.command("replay", cls=eval_command.EvalCommand, short_help="Score a finished run again, without a model.")(
    replay.command
)
app.command("init", short_help="Make an environment that runs.")(init.command)
app.command("list", short_help="List the environments and harnesses there are.")(list_command.command)
app.add_typer(model.app, name="model")
