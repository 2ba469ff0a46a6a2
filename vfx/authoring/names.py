"""Names that classes of users can't give to their fields."""

import inspect
from collections.abc import Set as AbstractSet

__all__ = ["refuse_fields"]


def refuse_fields(cls: type, reserved: AbstractSet[str]) -> None:
    """Check the annotations that `cls` itself has; a class variable of a reserved name is fine.

    Raises:
        TypeError: One of them makes a field of a reserved name.
    """
    hints = inspect.get_annotations(cls)
    if taken := sorted(name for name, hint in hints.items() if name in reserved and "ClassVar" not in str(hint)):
        raise TypeError(f"{cls.__name__}: a field can't be named {', '.join(taken)}: vfx uses that name")
