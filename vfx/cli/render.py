"""The dry run: the resolved configuration as TOML, with where each value comes from."""

from collections.abc import Iterator, Mapping

from vfx.cli.layers import Source
from vfx.runner.config import EvalConfig
from vfx.runner.saved_config import toml_lines

__all__ = ["dry_run_lines"]

WIDEST = 60
"""A longer line does not push the sources of the others to the right."""


def dry_run_lines(config: EvalConfig, sources: Mapping[str, Source]) -> Iterator[str]:
    """The lines to print; together they are a file that `vfx eval @ FILE` takes."""
    lines = list(toml_lines(config))
    width = max((len(line.text) for line in lines if line.path and len(line.text) <= WIDEST), default=0)
    for line in lines:
        yield f"{line.text:<{width}}  # {_source(line.path, sources)}" if line.path else line.text


def _source(path: tuple[str, ...], sources: Mapping[str, Source]) -> str:
    """Of the option itself, or of the table that it came in."""
    for length in range(len(path), 0, -1):
        if source := sources.get(".".join(path[:length])):
            return source.name
    return "default"
