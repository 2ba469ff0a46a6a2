import base64

import pytest

from vfx.clients.base import HttpSettings
from vfx.clients.endpoint import Endpoint
from vfx.redaction import redact


def mistake(settings: HttpSettings) -> str:
    (found,) = Endpoint(settings).mistakes()
    return str(found)


def headers(settings: HttpSettings, *passing: tuple[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in Endpoint(settings).headers(passing)}


def test_a_path_lies_below_the_base_url_and_keeps_its_query() -> None:
    endpoint = Endpoint(HttpSettings(base_url="https://u:p@api.example.com:8443/v1/?key=k123&v=2"))
    assert endpoint.url("chat/completions") == "https://api.example.com:8443/v1/chat/completions?key=k123&v=2"
    assert endpoint.url("/models?limit=3") == "https://api.example.com:8443/v1/models?key=k123&v=2&limit=3"


def test_the_address_for_people_has_no_credentials_and_no_query() -> None:
    endpoint = Endpoint(HttpSettings(base_url="https://user:pa55word@api.example.com/v1?key=k123"))
    assert endpoint.address == "https://api.example.com/v1"
    assert endpoint.host == "api.example.com"


def test_an_ipv6_host_keeps_its_brackets() -> None:
    assert Endpoint(HttpSettings(base_url="http://[::1]:8000/v1")).url("models") == "http://[::1]:8000/v1/models"


def test_the_key_is_a_bearer_token(api_key: str) -> None:
    assert headers(HttpSettings())["authorization"] == f"Bearer {api_key}"


VERSION = ("anthropic-version", "2023-06-01")


@pytest.mark.parametrize(
    ("path", "passing"), [("messages", []), ("/messages/count_tokens?beta=true", []), ("models", [VERSION])]
)
def test_calls_in_the_dialect_of_anthropic_carry_the_key_where_gateways_look_for_it(
    path: str, passing: list[tuple[str, str]], api_key: str
) -> None:
    sent = dict(Endpoint(HttpSettings(base_url="https://gateway.example.com/v1")).headers(passing, path))
    assert (sent["Authorization"], sent["x-api-key"]) == (f"Bearer {api_key}", api_key)


def test_the_api_of_anthropic_gets_the_key_in_its_own_header_only(api_key: str) -> None:
    endpoint = Endpoint(HttpSettings(base_url="https://api.anthropic.com/v1"))
    sent = {name.lower(): value for name, value in endpoint.headers([VERSION], "messages")}
    assert (sent["x-api-key"], sent["anthropic-version"]) == (api_key, "2023-06-01")
    assert "authorization" not in sent
    assert "x-api-key" not in dict(endpoint.headers([], "chat/completions"))


@pytest.mark.parametrize("name", ["X-Api-Key", "Authorization"])
def test_a_credential_of_the_users_own_is_the_only_one_of_its_name(name: str) -> None:
    sent = Endpoint(HttpSettings(headers={name: "Bearer mine-1"})).headers([], "messages")
    credentials = [value for given, value in sent if given.lower() == name.lower()]
    assert credentials == ["Bearer mine-1"]


@pytest.mark.usefixtures("api_key")
def test_an_endpoint_without_a_key_gets_none() -> None:
    sent = dict(Endpoint(HttpSettings(api_key_var="none")).headers([], "messages"))
    assert sent.keys().isdisjoint({"Authorization", "x-api-key"})


def test_userinfo_is_basic_authentication_without_a_key() -> None:
    settings = HttpSettings(base_url="http://user:pa%2F55@127.0.0.1/v1", api_key_var="none")
    scheme, _, value = headers(settings)["authorization"].partition(" ")
    assert (scheme, base64.b64decode(value)) == ("Basic", b"user:pa/55")


def test_a_header_of_the_users_replaces_the_key_and_the_programs_own() -> None:
    settings = HttpSettings(headers={"Authorization": "Bearer other-token", "X-Team": "blue-team"})
    sent = headers(settings, ("x-team", "the program's"), ("anthropic-beta", "x"))
    assert sent["authorization"] == "Bearer other-token"
    assert (sent["x-team"], sent["anthropic-beta"]) == ("blue-team", "x")


def test_a_header_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_TOKEN", "team-7781")
    assert headers(HttpSettings(headers={"X-Team": "env:TEAM_TOKEN"}))["x-team"] == "team-7781"


def test_only_encodings_that_can_be_unpacked_are_offered() -> None:
    assert headers(HttpSettings(), ("Accept-Encoding", "br, zstd, gzip"))["accept-encoding"] == "gzip, deflate"


def test_a_stale_length_of_the_programs_does_not_pass() -> None:
    assert (
        not {"content-length", "host", "connection"}
        & headers(HttpSettings(), ("Content-Length", "3"), ("Host", "evil.example"), ("Connection", "close")).keys()
    )


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_key_names_the_variable_and_the_ways_out(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    if value is not None:
        monkeypatch.setenv("OPENAI_API_KEY", value)
    text = mistake(HttpSettings())
    assert "OPENAI_API_KEY" in text
    assert "--client.api-key-var" in text
    assert "none" in text


@pytest.mark.parametrize("key", ["sk-9d81\n", " sk-9d81", "sk-\x009d81", "sk-9d81é"])
def test_a_key_that_no_header_can_carry_is_told_without_showing_it(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    if "\x00" in key:
        key = key.replace("\x00", "\x01")
    monkeypatch.setenv("OPENAI_API_KEY", key)
    text = mistake(HttpSettings())
    assert "OPENAI_API_KEY" in text
    assert "9d81" not in text


@pytest.mark.parametrize(
    "url", ["api.example.com/v1", "ftp://x/v1", "http://", "http://x:port/v1", "http://a b/v1", ""]
)
def test_what_is_no_http_address_is_a_mistake(url: str) -> None:
    assert "--client.base-url" in mistake(HttpSettings(base_url=url))


def test_a_bad_address_is_told_without_its_password() -> None:
    assert "pa55word" not in mistake(HttpSettings(base_url="ftp://user:pa55word@x/v1"))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("X-Team", "env:NO_SUCH_VARIABLE", "NO_SUCH_VARIABLE"),
        ("X-Team", "two\r\nlines", "line break"),
        ("X Team", "blue", "no name for a header"),
        ("Content-Length", "3", "set by vfx"),
    ],
)
def test_a_header_that_cannot_be_sent_is_a_mistake(name: str, value: str, expected: str) -> None:
    assert expected in mistake(HttpSettings(headers={name: value}))


def test_all_mistakes_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    settings = HttpSettings(base_url="nowhere", headers={"X-Team": "env:NO_SUCH_VARIABLE"})
    assert len(Endpoint(settings).mistakes()) == 3


def test_every_secret_is_concealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "S1-key-0417")
    monkeypatch.setenv("FROM_ENV", "S6-env-0417")
    Endpoint(
        HttpSettings(
            base_url="http://user:S5-pass-0417@127.0.0.1/v1?key=S4-query-0417",
            headers={"Authorization": "Bearer S2-bearer-0417", "X-Team": "S3-team-0417", "X-Env": "env:FROM_ENV"},
        )
    )
    said = "S1-key-0417 S2-bearer-0417 S3-team-0417 S4-query-0417 S5-pass-0417 S6-env-0417"
    assert redact(said) == "*** *** *** *** *** ***"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost", "model.localhost"])
def test_a_loopback_host_is_never_reached_through_a_proxy(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    assert Endpoint(HttpSettings(base_url=f"http://{host}:8000/v1")).proxy is None


def test_a_remote_host_is_reached_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example")
    assert Endpoint(HttpSettings(base_url="https://api.example.com/v1")).proxy == "http://proxy.example:3128"
    assert Endpoint(HttpSettings(base_url="https://inside.example/v1")).proxy is None


def test_a_proxy_of_another_kind_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://user:sock-pass-9@127.0.0.1:1080")
    text = mistake(HttpSettings(base_url="https://api.example.com/v1"))
    assert "socks5" in text
    assert "NO_PROXY" in text
    assert "sock-pass-9" not in text
