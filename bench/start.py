"""How long it takes until the command answers, beside what an interpreter and its imports cost anyway."""

import sys

from running import measure

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "python -c 'import typer'": ["-c", "import typer"],
    "python -c 'import pydantic'": ["-c", "from pydantic import BaseModel"],
    "vfx --help": ["-m", "vfx", "--help"],
    "vfx --version": ["-m", "vfx", "--version"],
    "vfx eval --help": ["-m", "vfx", "eval", "--help"],
    "vfx eval arithmetic --client.type scripted --dry-run": [
        *("-m", "vfx", "eval", "arithmetic", "--client.type", "scripted", "--dry-run"),
    ],
}


def main() -> None:
    print(f"{'command':<56}{'wall s':>8}{'CPU s':>8}")
    for name, argv in COMMANDS.items():
        cost, _ = measure([sys.executable, *argv], repeat=7)
        print(f"{name:<56}{cost.wall:>8.3f}{cost.cpu:>8.3f}")


if __name__ == "__main__":
    main()
