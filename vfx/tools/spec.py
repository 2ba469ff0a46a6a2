"""What a tool server's process is told when it starts, as JSON on its stdin: it may hold secrets."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from typing import cast

from vfx.authoring.loading import file_modules, load_file, load_module
from vfx.authoring.toolset import Toolset
from vfx.errors import ConfigError

__all__ = ["ServerSpec"]


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One tool server."""

    name: str
    """What the environment calls it."""
    module: str
    """Where its class is; one that was loaded by the path of a file is in `files`."""
    qualname: str
    settings: str
    """The class's fields as JSON."""
    key: str
    """With it vfx opens and closes rollouts; no rollout knows it."""
    port: int
    """To be taken if it is free; 0 = any."""
    files: Mapping[str, str]
    """Paths of files by the names of their modules."""
    sys_path: tuple[str, ...]

    @classmethod
    def of(cls, name: str, toolset: Toolset, *, key: str, port: int = 0) -> "ServerSpec":
        """What a server of `toolset` is told.

        Raises:
            ConfigError: Another process can't find the class.
        """
        owner = type(toolset)
        if "<locals>" in owner.__qualname__ or owner.__module__ == "__main__":
            place = "inside a function" if "<locals>" in owner.__qualname__ else "in the program that was started"
            raise ConfigError(
                f"{owner.__name__} is defined {place}, where its process can't find it: move it to a module"
            )
        return cls(
            name=name,
            module=owner.__module__,
            qualname=owner.__qualname__,
            settings=toolset.model_dump_json(),
            key=key,
            port=port,
            files=file_modules(),
            sys_path=tuple(sys.path),
        )

    def encode(self) -> bytes:
        """As it travels."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "ServerSpec":
        """What `encode` wrote."""
        return cls(**json.loads(data))

    def load(self) -> Toolset:
        """The configured toolset."""
        return self.load_class().model_validate_json(self.settings)

    def load_class(self) -> type[Toolset]:
        """The class, its module imported as vfx has.

        Raises:
            ConfigError: It can't be.
        """
        sys.path[:] = self.sys_path
        path = self.files.get(self.module)
        module = load_module(self.module, self.name) if path is None else load_file(path, self.name)
        return cast("type[Toolset]", reduce(getattr, self.qualname.split("."), module))
