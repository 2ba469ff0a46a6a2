"""`python -m vfx` is the same as `vfx`."""

from vfx.cli.main import main

main()
