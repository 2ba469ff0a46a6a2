"""`vfx validate` from outside: environments with one thing wrong, and what is said about it."""

import signal
import textwrap
from pathlib import Path

import anyio
import pytest

from tests.support.command import Done, start_vfx, vfx
from tests.support.processes import handles_signals

pytestmark = pytest.mark.anyio


async def validate(tmp_path: Path, task: str, load: str, *argv: str, base: str = "vfx.Task") -> Done:
    """Validate a taskset whose task class has the body `task` and whose `load` has the body `load`."""
    text = f"import vfx\n\nclass Q({base}):\n    answer: str = ''\n{textwrap.indent(textwrap.dedent(task), '    ')}\n"
    text += f"class Work(vfx.Taskset[Q]):\n    def load(self):\n{textwrap.indent(textwrap.dedent(load), ' ' * 8)}\n"
    (tmp_path / "work.py").write_text(text)
    return await vfx("validate", "./work.py", *argv, cwd=tmp_path)


REWARD = """
    @vfx.reward
    def right(self, trace):
        return float(trace.last_reply == self.answer)
"""
TWO = """
    yield Q(prompt='1?', answer='1', id='one')
    yield Q(prompt='2?', answer='2', id='two')
"""


async def test_an_environment_that_is_right(tmp_path: Path) -> None:
    done = await vfx("validate", "arithmetic", "-n", "3", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.stdout == "arithmetic: 3 tasks; none has a check; doing nothing earns 0.000; 0 failed, 0 warnings\n"
    assert list(tmp_path.iterdir()) == []


async def test_a_check_that_does_not_hold_fails_its_task(tmp_path: Path) -> None:
    check = """
        def check(self, runtime):
            return self.answer == '1'
    """
    done = await validate(tmp_path, textwrap.dedent(REWARD) + textwrap.dedent(check), TWO)
    assert done.code == 1
    assert "failed   check    the reference solution is not right (two)" in done.stdout
    assert "2 tasks; 2 with a check; doing nothing earns 0.000; 1 failed" in done.stdout


async def test_check_runs_after_setup_in_a_runtime_of_its_own(tmp_path: Path) -> None:
    body = """
        async def setup(self, runtime):
            await runtime.run(['sh', '-c', 'echo x >> prepared'])

        async def check(self, runtime):
            return (await runtime.run(['wc', '-l', 'prepared'])).stdout.startswith('1 ')
    """
    done = await validate(tmp_path, textwrap.dedent(REWARD) + textwrap.dedent(body), TWO)
    assert (done.code, "2 with a check" in done.stdout) == (0, True), done.stdout


async def test_a_check_that_raises_or_says_nothing(tmp_path: Path) -> None:
    body = """
        def check(self):
            if self.id == 'one':
                raise KeyError('solution')
    """
    done = await validate(tmp_path, textwrap.dedent(REWARD) + textwrap.dedent(body), TWO)
    assert "check: KeyError: 'solution' (one)" in done.stdout
    assert "must give True or False, got None (two)" in done.stdout


async def test_a_check_that_never_ends(tmp_path: Path) -> None:
    body = """
        def check(self):
            import time; time.sleep(20)
    """
    done = await validate(tmp_path, textwrap.dedent(REWARD) + textwrap.dedent(body), TWO, "--timeout.scoring", "0.2")
    assert (done.code, "took longer than 0.2 s (--timeout.scoring) (every task)" in done.stdout) == (1, True)


async def test_equal_tasks_are_listed_and_allowed(tmp_path: Path) -> None:
    done = await validate(tmp_path, REWARD, "return [Q(prompt='a', answer='b')] * 3 + [Q(prompt='c', answer='d')]")
    assert done.code == 0
    assert "note     key      3 tasks are equal and share this key (" in done.stdout


async def test_prompts_that_make_no_messages(tmp_path: Path) -> None:
    load = """
        yield Q(id='none', answer='x')
        yield Q(id='blank', prompt='  ', answer='x')
        yield Q(id='roleless', prompt=({'content': 'x'},), answer='x')
    """
    done = await validate(tmp_path, REWARD, load)
    assert done.code == 1
    for line in ("has no prompt, and nobody else opens the conversation (none)", "is empty (blank)", "(roleless)"):
        assert line in done.stdout


async def test_rewards_that_fail_or_are_no_number(tmp_path: Path) -> None:
    body = """
        @vfx.reward
        def bad(self, trace):
            return float('nan') if self.id == 'one' else 1 / 0
    """
    done = await validate(tmp_path, body, TWO)
    assert done.code == 1
    assert "reward 'bad' must give a finite number, got nan (one)" in done.stdout
    assert "reward 'bad': ZeroDivisionError: division by zero (two)" in done.stdout


async def test_a_reward_for_doing_nothing_is_a_warning(tmp_path: Path) -> None:
    body = """
        @vfx.reward
        def polite(self, trace):
            return 0.5
    """
    done = await validate(tmp_path, body, TWO)
    assert done.code == 0
    assert "warning  reward   an empty reply earns more than 0 on 2 of 2 tasks, 0.500 on average" in done.stdout


async def test_no_reward_at_all_is_a_warning(tmp_path: Path) -> None:
    done = await validate(tmp_path, "", TWO)
    assert (done.code, "Q has no reward, so nothing would be scored (every task)" in done.stdout) == (0, True)


async def test_group_rewards_are_tried(tmp_path: Path) -> None:
    body = """
        @vfx.group_reward
        def best(self, traces):
            return [1.0]
    """
    done = await validate(tmp_path, body, TWO)
    assert done.code == 1
    assert "group reward 'best' must give a list of 2 numbers" in done.stdout


async def test_setup_that_fails_is_said_once(tmp_path: Path) -> None:
    body = """
        def setup(self):
            raise OSError('no disk')

        def check(self):
            return True
    """
    done = await validate(tmp_path, textwrap.dedent(REWARD) + textwrap.dedent(body), TWO)
    assert done.stdout.count("no disk") == 1
    assert "setup: OSError: no disk (every task)" in done.stdout


async def test_tasks_that_do_not_load(tmp_path: Path) -> None:
    done = await validate(tmp_path, REWARD, "yield Q(prompt='x')\nyield Q(prompt=7)")
    assert done.code == 1
    assert "failed   load     its tasks can't be loaded, after 1 of them: Q with prompt" in done.stdout
    assert "errors.pydantic.dev" not in done.stdout


async def test_what_others_wrote_does_not_reach_the_terminal_as_it_is(tmp_path: Path) -> None:
    body = """
        @vfx.reward
        def bad(self):
            raise ValueError('first\\n\\x1b[31msecond')
    """
    done = await validate(tmp_path, body, "yield Q(prompt='1?', id='\\x1b[2Jone')")
    assert "\x1b" not in done.stdout
    assert "ValueError: first [31msecond ([2Jone)" in done.stdout


async def test_findings_as_json(tmp_path: Path) -> None:
    done = await validate(tmp_path, "", TWO, "--json")
    assert (done.json["tasks"], done.json["failed"], done.json["warnings"], done.json["exit_code"]) == (2, 0, 2, 0)
    assert done.json["findings"][0]["tasks"] == ["one", "two"]


async def test_options_of_the_environment_apply_and_those_of_a_run_do_not(tmp_path: Path) -> None:
    done = await vfx("validate", "arithmetic", "--taskset.size", "2", "--model", "x", "--json", cwd=tmp_path)
    assert done.code == 2
    assert done.stderr == "vfx: 1 mistake:\n  --model: is no option of vfx validate (it is one of vfx eval)\n"
    (tmp_path / "run.toml").write_text("model = 'x'\n[taskset]\nsize = 2\n")
    done = await vfx("validate", "arithmetic", "@", "run.toml", "--json", cwd=tmp_path)
    assert done.json["tasks"] == 2


async def test_usage(tmp_path: Path) -> None:
    assert "name an environment" not in (await vfx("validate", "--help", cwd=tmp_path)).stdout
    nothing = await vfx("validate", cwd=tmp_path)
    assert (nothing.code, "no environment is named" in nothing.stderr) == (2, True)
    endless = tmp_path / "endless.py"
    endless.write_text("import vfx\nclass W(vfx.Taskset):\n    infinite = True\n    def load(self): yield\n")
    unbounded = await vfx("validate", "./endless.py", cwd=tmp_path)
    assert (unbounded.code, "such as -n 100" in unbounded.stderr) == (2, True)
    none_left = await vfx("validate", "arithmetic", "--include", "zzz", cwd=tmp_path)
    assert (none_left.code, "no task is left" in none_left.stderr) == (2, True)


async def test_ctrl_c_ends_it_cleanly_and_shows_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import anyio, vfx\nclass Q(vfx.Task):\n    async def setup(self):\n        open('begun', 'w').close()\n"
        "        await anyio.sleep(60)\nclass W(vfx.Taskset):\n    def load(self):\n        yield Q(prompt='x')\n"
    )
    process = await start_vfx("validate", "./slow.py", cwd=tmp_path)
    async with process:
        assert await handles_signals(process.pid)
        with anyio.fail_after(30):
            while not (tmp_path / "begun").exists():
                await anyio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert process.stdout
            output = b"".join([chunk async for chunk in process.stdout]).decode()
            assert await process.wait() == 130
    assert "interrupted after 0" in output
