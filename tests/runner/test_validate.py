from vfx.authoring.registry import taskset_class
from vfx.harnesses.chat import Chat
from vfx.runner.config import EvalConfig
from vfx.runner.validate import Finding, Validation, idle_config, task_label
from vfx.tasksets.arithmetic import ArithmeticTask


def test_findings_that_say_the_same_are_one_and_what_fails_comes_first() -> None:
    found = Validation(
        3,
        [
            Finding("warning", "reward", "none", "a"),
            Finding("failed", "prompt", "is empty", "b"),
            Finding("warning", "reward", "none", "c"),
        ],
    )
    grouped = [(finding.check, tasks) for finding, tasks in found.groups()]
    assert grouped == [("prompt", ["b"]), ("reward", ["a", "c"])]
    assert (found.failed, found.warnings) == (1, 2)


def test_the_reward_of_doing_nothing_is_over_tasks() -> None:
    found = Validation(3, earned=[1.0, 0.0, 0.5])
    assert (found.idle_reward.mean, found.idle_reward.count) == (0.5, 3)
    assert Validation(0).idle_reward.mean is None


def test_a_task_is_called_as_people_call_it() -> None:
    task = ArithmeticTask(prompt="1+1", answer=2)
    assert task_label(task) == task.key
    assert task_label(task.model_copy(update={"name": "sum"}), 1) == "sum (equal task 2)"


def test_nothing_of_the_model_is_left_in_the_configuration() -> None:
    config = EvalConfig(taskset=taskset_class("arithmetic")(id="arithmetic"), harness=Chat(id="x"), model="m")
    idle = idle_config(config)
    assert (idle.client.type, idle.model, idle.harness.id, idle.max_turns) == ("scripted", None, "chat", 1)
    assert idle.harness.runtime == config.harness.runtime
