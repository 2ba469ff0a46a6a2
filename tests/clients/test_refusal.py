import json

import pytest

from vfx.clients.base import ProviderRequest
from vfx.clients.refusal import is_out_of_quota, refusal
from vfx.errors import ProviderError
from vfx.redaction import conceal

REQUEST = ProviderRequest("chat/completions", b'{"model": "big-1", "messages": []}')
HOST = "api.example.com"


def said(status: int, body: bytes = b"", request: ProviderRequest = REQUEST, **headers: str) -> ProviderError:
    return refusal(request, status, [*headers.items()], body, host=HOST, key_var="TEAM_KEY")


def test_a_wrong_key_names_status_host_model_and_variable() -> None:
    error = said(401, b'{"error": {"message": "Incorrect API key"}}')
    assert str(error) == f"HTTP 401 from {HOST} for model 'big-1': Incorrect API key (the key is read from TEAM_KEY)"
    assert (error.status, error.fatal) == (401, f"HTTP 401 from {HOST}")


def test_without_a_key_a_401_says_so() -> None:
    error = refusal(REQUEST, 401, [], b"", host=HOST, key_var=None)
    assert "no key was sent" in str(error)


@pytest.mark.parametrize(
    ("path", "is_asked"), [("responses", True), ("messages?beta=true", True), (REQUEST.path, False)]
)
def test_an_endpoint_that_lacks_the_route_of_a_dialect_is_asked_about_it(path: str, is_asked: bool) -> None:
    error = said(404, b'{"detail": "Not Found"}', ProviderRequest(path, b"{}"))
    assert ("does this endpoint serve it?" in str(error)) is is_asked


@pytest.mark.parametrize(
    "body", [b'{"error": "why"}', b'{"message": "why"}', b'{"detail": "why"}', b"why", b" \nwhy\x07"]
)
def test_the_providers_words_are_found_in_any_form(body: bytes) -> None:
    assert str(said(400, body)) == f"HTTP 400 from {HOST} for model 'big-1': why"


@pytest.mark.parametrize("body", [b"", b"[1]", b"null", b'{"error": null}', b"\xff\xfe", b"[" * 100_000])
def test_a_body_without_words_does_no_harm(body: bytes) -> None:
    assert len(str(said(500, body))) < 500


def test_long_words_are_cut_after_secrets_are_masked() -> None:
    conceal("sk-long-secret-5512")
    text = str(said(400, b"x" * 295 + b"sk-long-secret-5512" + b"y" * 500))
    assert "sk-l" not in text
    assert len(text) < 400


@pytest.mark.parametrize(("status", "is_fatal"), [(400, False), (401, True), (403, True), (404, True), (500, False)])
def test_what_every_call_would_get_is_fatal(status: int, is_fatal: bool) -> None:
    assert (said(status).fatal is not None) == is_fatal


def test_a_missing_listing_of_models_is_not_fatal() -> None:
    assert said(404, request=ProviderRequest("models", b"", method="GET")).fatal is None


def test_no_credit_left_is_fatal() -> None:
    body = json.dumps({"error": {"code": "insufficient_quota", "message": "You exceeded your quota"}}).encode()
    assert is_out_of_quota(429, body)
    assert said(429, body).fatal


def test_a_redirect_names_where_to() -> None:
    error = said(301, Location="https://api.example.com/v2/chat/completions")
    assert "https://api.example.com/v2/chat/completions" in str(error)
    assert "--client.base-url" in str(error)


def test_an_overlong_prompt_is_told_apart() -> None:
    body = b'{"error": {"code": "context_length_exceeded", "message": "too long"}}'
    assert said(400, body).truncated
    assert not said(400, b'{"error": {"message": "bad"}}').truncated
