"""What may differ when a run goes on, and what may not: records of one run have to be comparable."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import BaseModel

from vfx.errors import Mistake
from vfx.runner.config import EvalConfig
from vfx.runner.saved_config import to_toml

__all__ = ["OPERATIONAL", "VARIANTS", "differences"]

OPERATIONAL = frozenset(
    {
        # More of them extend a run, fewer delete nothing.
        "num_tasks",
        "num_rollouts",
        "max_concurrent",
        "retries",
        "interception",
        "client.base_url",
        "client.api_key_var",
        "client.headers",
        "client.idle_timeout",
        "client.max_retries",
        "client.max_retry_wait",
        "client.slots",
        "client.threads",
        "client.latency",
        "client.cassette",
        "client.cassette_mode",
        "client.cassette_ignore",
        # Not timeout.rollout: what a program has reached by then is scored. The others only end in errors.
        "timeout.setup",
        "timeout.finalize",
        "timeout.scoring",
        "timeout.total",
        "output_dir",
        "name",
        "max_error_share",
        "fail_under",
        "log_level",
        "display",
    }
)
"""Options, and groups of them, that don't bear on results. Everything else does, new options included."""

TOOL_GROUPS = ("taskset.tools", "taskset.task.tools")
OPERATIONAL_OF_TOOLS = frozenset({"url", "headers", "start_timeout", "call_timeout", "max_restarts"})
"""Of each tool server."""

VARIANTS = {"taskset": "id", "harness": "id", "client": "type", "interception": "type"}
"""Groups whose options depend on one of them."""

_Path = tuple[str, ...]
"""Names; an entry of a list of tables, such as a judge, is `judges[0]`."""
_ENTRY = re.compile(r"(.+)\[(\d+)\]")


def differences(saved: Mapping[str, Any], config: EvalConfig) -> list[Mistake]:
    """Why a run that was saved as `saved` can't go on with `config`: every option that bears on results and differs.

    Args:
        saved: What its `config.toml` holds.
        config: What it is to go on with.
    """
    old = dict(_leaves(saved, ()))
    new = dict(_leaves(tomllib.loads(to_toml(config)), ()))
    changed = {
        group
        for group, tag in VARIANTS.items()
        if (group, tag) in old and old[group, tag] != new.get((group, tag), old[group, tag])
    }
    return [
        Mistake(
            f"was {_shown(old, path)} when the run began and is {_shown(new, path)} now",
            _flag(path),
            "leave it out to go on with the run, or start a new one",
        )
        for path in sorted(old.keys() | new.keys())
        if not _is_operational(path)
        and old.get(path) != new.get(path)
        # The options of another variant differ because the variant does, which is said once.
        and not (path[0] in changed and path[1:] != (VARIANTS[path[0]],))
        # So are those of an entry of a list that has other entries now.
        and not any(old.get(entries) != new.get(entries) for entries in _lists_above(path))
        # One that vfx or the environment has got since then was at its default all along.
        and not (path not in old and _is_default(config, path))
    ]


def _flag(path: _Path) -> str:
    # Deeper down there are keys of open maps, which are taken literally.
    return "--" + ".".join([*(name.replace("_", "-") for name in path[:2]), *path[2:]])


def _is_operational(path: _Path) -> bool:
    for group in TOOL_GROUPS:
        depth = group.count(".") + 1
        if ".".join(path[:depth]) == group and path[depth + 1 : depth + 2] and path[depth + 1] in OPERATIONAL_OF_TOOLS:
            return True
    if "client" in path[1:]:
        # That of a judge or a user, of which the same holds as of the run's own.
        path = path[path.index("client", 1) :]
    return any(".".join(path[:length]) in OPERATIONAL for length in range(1, len(path) + 1))


def _lists_above(path: _Path) -> Iterator[_Path]:
    for depth, name in enumerate(path):
        if found := _ENTRY.fullmatch(name):
            yield (*path[:depth], found[1])


def _is_default(config: BaseModel, path: _Path) -> bool:
    model: Any = config
    for name in path[:-1]:
        found = _ENTRY.fullmatch(name)
        model = getattr(model, found[1] if found else name, None)
        if found and isinstance(model, list | tuple):
            model = dict(enumerate(cast("Sequence[Any]", model))).get(int(found[2]))
    field = type(model).model_fields.get(path[-1]) if isinstance(model, BaseModel) else None
    return field is not None and getattr(model, path[-1]) == field.get_default(call_default_factory=True)


def _leaves(table: Mapping[str, Any], path: _Path) -> Iterator[tuple[_Path, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, Any]", value), (*path, name))
        elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in cast("list[Any]", value)):
            entries = cast("list[dict[str, Any]]", value)
            yield (*path, name), [entry.get("name") or entry.get("type") for entry in entries]
            for index, entry in enumerate(entries):
                yield from _leaves(entry, (*path, f"{name}[{index}]"))
        else:
            yield (*path, name), value


def _shown(values: Mapping[_Path, Any], path: _Path) -> str:
    return json.dumps(values[path], ensure_ascii=False, default=str) if path in values else "unset"
