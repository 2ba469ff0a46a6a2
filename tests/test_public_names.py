import subprocess
import sys

import vfx


def test_every_public_name_is_there_and_listed() -> None:
    assert sorted(vfx.__all__) == dir(vfx)
    assert [name for name in vfx.__all__ if getattr(vfx, name, None) is None] == []


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    assert not hasattr(vfx, "Taskett")


def test_importing_the_package_loads_none_of_its_parts() -> None:
    program = "import sys, vfx; print([name for name in sys.modules if name.startswith('vfx.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
