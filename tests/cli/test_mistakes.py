"""What a newcomer gets wrong, and that each is told so in a sentence, with exit code 2 and without a traceback."""

from pathlib import Path

import pytest

from tests.support.command import Done, vfx

pytestmark = pytest.mark.anyio


async def told(tmp_path: Path, *argv: str, code: int = 2) -> str:
    """What the command says about a mistake."""
    done: Done = await vfx(*argv, cwd=tmp_path)
    assert done.code == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


SCRIPTED = ("--client.type", "scripted")


async def test_commands(tmp_path: Path) -> None:
    assert "there is no command 'validat' (did you mean validate?)" in await told(tmp_path, "validat")
    assert "vfx model: there is no command 'instal' (did you mean install?)" in await told(tmp_path, "model", "instal")


async def test_model_alone_shows_its_commands(tmp_path: Path) -> None:
    done = await vfx("model", cwd=tmp_path)
    assert done.code == 2
    shown = done.stdout + done.stderr
    assert "install  Fetch the embedded model (93 MB, once)." in shown


async def test_places_that_hold_no_environment(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import vfx\n")
    (tmp_path / "folder").mkdir()
    assert "ENV: there is no file './nowhere.py'" in await told(tmp_path, "eval", "./nowhere.py", *SCRIPTED)
    assert "(name a file in it, such as work.py)" in await told(tmp_path, "eval", ".", *SCRIPTED)
    assert "(write ./folder for the folder)" in await told(tmp_path, "eval", "folder", *SCRIPTED)
    assert "(write ./work.py for the file)" in await told(tmp_path, "eval", "work", *SCRIPTED)
    assert "'./work.py' defines no subclass of vfx.Taskset" in await told(tmp_path, "eval", "./work.py", *SCRIPTED)


async def test_code_that_fails_when_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text("\nraise RuntimeError('no data')\n")
    (tmp_path / "exits.py").write_text("raise SystemExit(3)\n")
    said = await told(tmp_path, "eval", "./raises.py", *SCRIPTED)
    assert "'./raises.py' can't be loaded: RuntimeError: no data (line 2 of raises.py)" in said
    assert "it calls sys.exit(3)" in await told(tmp_path, "eval", "./exits.py", *SCRIPTED)
    said = await told(tmp_path, "eval", "nowhere:Thing", *SCRIPTED)
    assert said.endswith("module 'nowhere' can't be loaded: ModuleNotFoundError: No module named 'nowhere'\n")


async def test_a_taskset_that_gives_no_tasks(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import vfx\nclass W(vfx.Taskset):\n    def load(self): return None\n")
    assert "W.load() must give tasks, as a list or with yield" in await told(tmp_path, "eval", "./work.py", *SCRIPTED)


async def test_files_of_options(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("n = [")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    assert "bad.toml: is not valid TOML" in await told(tmp_path, "eval", "@", "bad.toml")
    assert "bytes.toml: is not UTF-8: byte 0 is 0xff" in await told(tmp_path, "eval", "@", "bytes.toml")
    assert "@ none.toml: can't be read: No such file" in await told(tmp_path, "eval", "@", "none.toml")
    assert "(write @ bad.toml to read its options)" in await told(tmp_path, "eval", "bad.toml")


async def test_results_that_can_be_kept_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outputs").touch()
    said = await told(tmp_path, "eval", "arithmetic", *SCRIPTED)
    assert "run folder outputs/arithmetic--scripted--chat/" in said
    assert "can't be used: Not a directory" in said
    said = await told(tmp_path, "eval", "arithmetic", *SCRIPTED, "--output-dir", "/proc/mine")
    assert "run folder /proc/mine/" in said


async def test_the_demo_without_its_model_says_how_to_get_it(tmp_path: Path) -> None:
    done = await vfx("eval", cwd=tmp_path, env={"VFX_DATA_DIR": str(tmp_path / "data")})
    assert done.code == 2
    assert "vfx model install" in done.stderr
    assert "Traceback" not in done.stderr
