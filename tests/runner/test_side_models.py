import pytest

from tests.support.provider import completion, scripted_provider
from tests.support.traces import make_trace
from vfx.clients.asking import ModelSettings
from vfx.clients.base import Client, ClientSettings, HttpSettings, LocalSettings, ScriptedSettings, create_client
from vfx.messages import Message
from vfx.runner.side_models import SideModels

pytestmark = pytest.mark.anyio


def side_models(settings: ClientSettings, model: str | None = "evaluated") -> tuple[SideModels, Client]:
    client = create_client(settings)
    return SideModels(settings, client, model), client


def test_without_settings_the_evaluated_model_is_asked_through_the_runs_own_client() -> None:
    models, own = side_models(ScriptedSettings())
    asker = models.add(ModelSettings(), "user")
    assert (asker.client, asker.model, models.clients) == (own, "evaluated", [])


def test_a_client_with_a_model_of_its_own_gives_the_model() -> None:
    models, _ = side_models(HttpSettings(api_key_var=None))
    assert models.add(ModelSettings(client=ScriptedSettings()), "user").model == "scripted"


def test_a_named_model_goes_before_all_others() -> None:
    models, _ = side_models(ScriptedSettings())
    assert models.add(ModelSettings(model="big"), "user").model == "big"
    assert models.add(ModelSettings(model="big", client=ScriptedSettings(latency=1)), "user").model == "big"


def test_equal_settings_share_a_client() -> None:
    models, own = side_models(HttpSettings(base_url="http://a.example/v1"))
    settings = HttpSettings(base_url="http://b.example/v1")
    first = models.add(ModelSettings(model="x", client=settings), "user")
    second = models.add(ModelSettings(model="y", client=settings.model_copy()), "taskset.task.judges[0]")
    third = models.add(ModelSettings(client=HttpSettings(base_url="http://a.example/v1")), "taskset.task.judges[1]")
    assert first.client is second.client is not own
    assert third.client is own
    assert models.clients == [first.client]


def test_the_embedded_model_runs_once_unless_another_process_is_asked_for() -> None:
    models, own = side_models(LocalSettings(slots=8, context=4096))
    assert models.add(ModelSettings(client=LocalSettings()), "user").client is own
    assert models.add(ModelSettings(client=LocalSettings(slots=8)), "user").client is own
    assert models.add(ModelSettings(client=LocalSettings(context=8192)), "user").client is not own


def test_mistakes_name_the_options_of_the_side_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    models, _ = side_models(ScriptedSettings())
    models.add(ModelSettings(model="m", client=HttpSettings(api_key_var="JUDGE_KEY")), "taskset.task.judges[1]")
    (mistake,) = models.mistakes()
    assert mistake.where == "taskset.task.judges[1].client (JUDGE_KEY)"
    assert "taskset.task.judges[1].client.api_key_var" in mistake.hint


def test_a_side_model_without_a_name_is_a_mistake() -> None:
    models, _ = side_models(ScriptedSettings(), model=None)
    models.add(ModelSettings(client=HttpSettings(api_key_var=None)), "taskset.task.judges[0]")
    assert [mistake.where for mistake in models.mistakes()] == ["taskset.task.judges[0].model"]


async def test_its_clients_are_up_while_it_serves() -> None:
    async with scripted_provider(completion("yes")) as provider:
        models, _ = side_models(ScriptedSettings())
        settings = HttpSettings(base_url=provider.base_url, api_key_var=None)
        asker = models.add(ModelSettings(model="m", client=settings), "user")
        async with models.serving():
            reply = await asker.ask(make_trace(), "user", "shopper", [Message("user", "hello")])
        assert reply.text == "yes"
        with pytest.raises(RuntimeError, match="not serving"):
            await asker.ask(make_trace(), "user", "shopper", [Message("user", "hello")])
