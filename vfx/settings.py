"""The base of everything a user configures."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Settings"]


class Settings(BaseModel):
    """A frozen group of options. Unknown keys are mistakes; the string under a field is its help text.

    Flags, TOML keys, environment variables, help and defaults all follow from the fields.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False, ser_json_inf_nan="constants")
