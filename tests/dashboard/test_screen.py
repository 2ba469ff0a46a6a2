"""The picture, kept as text: look at `screens/` when it changes, then run with VFX_KEEP_SCREENS=1 to keep it."""

import io
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from vfx.dashboard.screen import Glyphs, Page, draw, row_space
from vfx.dashboard.watch import ErrorLine, Row, Snapshot, Wait
from vfx.messages import Usage
from vfx.runner.estimates import Estimate

SCREENS = Path(__file__).parent / "screens"
SIZES = [(80, 24), (200, 50)]

BUSY = Snapshot(
    title=("reverse-text", "gpt-4.1-mini", "chat"),
    phase="running",
    seconds=754.0,
    planned=4000,
    scored=1198,
    errored=14,
    interrupted=0,
    running=32,
    allowed=None,
    stages={"boot": 2, "agent": 27, "scoring": 3},
    reward=Estimate(0.8123, 0.011, (0.7907, 0.8339), 1198),
    usage=Usage(1_243_000, 310_400),
    unknown_usage=12,
    side_tokens={},
    rate=1.61,
    token_rate=5210.0,
    remaining_seconds=1730.0,
    wait=Wait(9, "429 from api.openai.com", 1_800_000_000.0, 8.0),
    sent_again=41,
    retried=3,
    injected=0,
    kinds={"harness": 2, "provider": 12},
    errors=(
        ErrorLine(
            12,
            "HTTP 500 from api.openai.com for model 'gpt-4.1-mini' (after 6 attempts): the server had an error",
            "more --client.max-retries, or --retries.max-attempts 2",
        ),
        ErrorLine(2, "ValueError: no move for board 923848", "its traceback or output, in traces.jsonl"),
    ),
    ending=(),
)

ROWS = [
    Row(
        name=f"guess-the-number-in-as-few-turns-as-possible-{number:04}#{number % 4}"
        if number % 3
        else f"日本語-{number}#0",
        stage=("agent", "agent", "scoring", "boot")[number % 4],
        turns=number,
        tokens=None if number % 5 == 0 else 97 * number**2,
        seconds=7.0 * number,
        idle=0.4 * number,
        reply=""
        if number % 4 == 3
        else "I would say that it is 50, since that halves what is left of the range, and " * 2,
    )
    for number in range(32)
]

CALM = replace(
    BUSY,
    phase="starting",
    seconds=0.0,
    scored=0,
    errored=0,
    running=0,
    stages={},
    reward=Estimate(None, None, None, 0),
    usage=Usage(),
    unknown_usage=0,
    side_tokens={},
    rate=None,
    token_rate=None,
    remaining_seconds=None,
    wait=None,
    sent_again=0,
    retried=0,
    kinds={},
    errors=(),
)

ENDING = replace(BUSY, phase="stopping", interrupted=32, ending=("4 programs to end", "the tunnel"))


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def page(snapshot: Snapshot, width: int, height: int, number: int = 0, *, has_keys: bool = True) -> Page:
    space = row_space(snapshot, width, height)
    total = sum(snapshot.stages.values())
    return Page(ROWS[:total][number * space : (number + 1) * space], number, space, has_keys)


def text_of(snapshot: Snapshot, shown: Page, width: int, height: int, glyphs: Glyphs | None = None) -> str:
    console = Console(file=io.StringIO(), record=True, width=width, height=height, force_terminal=True)
    for line in draw(snapshot, shown, width - 1, height - 1, glyphs):
        console.print(line, no_wrap=True, overflow="crop", end="\n")
    return "\n".join(line.rstrip() for line in console.export_text().split("\n"))


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize(("name", "snapshot"), [("busy", BUSY), ("calm", CALM), ("ending", ENDING)])
def test_the_screen_is_as_it_was_looked_at(name: str, snapshot: Snapshot, width: int, height: int) -> None:
    shown = text_of(snapshot, page(snapshot, width - 1, height - 1), width, height)
    kept = SCREENS / f"{name}-{width}x{height}.txt"
    if os.environ.get("VFX_KEEP_SCREENS"):
        kept.write_text(shown)
    assert shown == kept.read_text()


@pytest.mark.parametrize("width", [1, 20, 40, 79, 119, 120, 300])
@pytest.mark.parametrize("height", [1, 5, 12, 23, 70])
def test_the_picture_fits_whatever_the_size(width: int, height: int) -> None:
    for snapshot in (BUSY, CALM, ENDING):
        lines = draw(snapshot, page(snapshot, width, height), width, height)
        assert 1 <= len(lines) <= height
        assert max(line.cell_len for line in lines) <= width


def test_tokens_of_side_models_stand_beside_the_others() -> None:
    shown = replace(BUSY, side_tokens={"judge": 52_100, "user": 30})
    assert "judge 52.1k  user 30" in text_of(shown, page(shown, 199, 49), 200, 50)
    assert "-  judge 30" in text_of(replace(CALM, side_tokens={"judge": 30}), page(CALM, 79, 23), 80, 24)


def test_what_a_run_finds_out_and_what_it_injects_is_shown() -> None:
    shown = text_of(replace(BUSY, allowed=48, injected=7), page(BUSY, 79, 23), 80, 24)
    assert "  32/auto 48 running  2756 to come" in shown
    assert "3 rollouts tried again  7 faults injected" in shown


def test_pages_follow_each_other() -> None:
    space = row_space(BUSY, 79, 23)
    second = text_of(BUSY, page(BUSY, 79, 23, 1), 80, 24)
    assert f"{space + 1}-{2 * space} of 32  page 2 of" in second


def test_without_keys_none_are_named() -> None:
    assert "next" not in text_of(BUSY, page(BUSY, 79, 23, has_keys=False), 80, 24)


def test_a_terminal_without_these_characters_gets_plain_ones() -> None:
    assert Glyphs.for_encoding("utf-8") == Glyphs()
    glyphs = Glyphs.for_encoding("ascii")
    named = replace(BUSY, title=("x" * 200, "m", "chat"))
    assert text_of(named, Page([], 0, 0), 80, 24, glyphs).isascii()
    assert Glyphs.for_encoding("latin-1") == Glyphs.for_encoding(None) == glyphs


def test_one_error_among_thousands_shows_in_the_bar() -> None:
    bar = draw(replace(BUSY, errored=1), Page([], 0, 0), 79, 23)[1]
    assert any(span.style == "red" for span in bar.spans)


def test_colours_are_legible_on_light_and_on_dark() -> None:
    used = {str(span.style) for line in draw(BUSY, page(BUSY, 199, 49), 199, 49) for span in line.spans}
    assert used <= {"bold", "green", "red", "magenta", ""}


@pytest.mark.parametrize(
    ("rate", "text"), [(None, "speed      -"), (2.0, "2.0 rollouts/s"), (0.05, "3.0 rollouts/min")]
)
def test_slow_runs_are_told_by_the_minute(rate: float | None, text: str) -> None:
    assert text in text_of(replace(BUSY, rate=rate, token_rate=None), Page([], 0, 0), 80, 24)
