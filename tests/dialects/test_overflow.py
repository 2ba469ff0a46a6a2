import pytest

from vfx.dialects.overflow import is_context_overflow


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, b'{"error":{"code":"context_length_exceeded"}}', True),
        (400, b"This model's maximum context length is 8192 tokens", True),
        (400, b"the request exceeds the available context size", True),
        (413, b'{"error":{"type":"exceed_context_size_error"}}', True),
        (500, b'{"error":{"code":"context_length_exceeded"}}', False),
        (400, b'{"error":{"code":"invalid_value"}}', False),
        (400, b"\xff\xfe", False),
    ],
)
def test_overlong_prompt_is_told_from_other_refusals(status: int, body: bytes, expected: bool) -> None:
    assert is_context_overflow(status, body) is expected
