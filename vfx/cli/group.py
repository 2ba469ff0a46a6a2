"""A group of commands that says what was meant when there is no command of that name."""

import difflib
from typing import Any, Never

from typer.core import TyperGroup

from vfx.errors import ConfigError, Mistake

__all__ = ["Commands"]


class Commands(TyperGroup):
    """Refuses an unknown command with the nearest name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or say which one may have been meant."""
        if args and args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            _refuse(ctx.command_path, args[0], list(self.commands))
        return super().resolve_command(ctx, args)


def _refuse(group: str, name: str, known: list[str]) -> Never:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    raise ConfigError(Mistake(f"there is no command {name!r}", "" if group == "vfx" else group, hint))
