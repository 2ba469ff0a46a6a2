"""A language model of half a megabyte with random weights: llama.cpp's real wire format, nonsense for text.

Source: the GGUF specification, version 3, in the ggml repository.
"""

import random
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path

__all__ = ["write_tiny_gguf"]

WIDTH, BLOCKS, HEADS, INNER = 64, 2, 4, 128
ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _byte_letters() -> list[str]:
    """One printable letter for each byte, as GPT-2's byte-level vocabulary has them."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _field(name: str, kind: int, raw: bytes) -> bytes:
    return _text(name) + struct.pack("<I", kind) + raw


def _list(name: str, kind: int, raw: Sequence[bytes]) -> bytes:
    return _field(name, ARRAY, struct.pack("<IQ", kind, len(raw)) + b"".join(raw))


def _fields() -> list[bytes]:
    letters = _byte_letters()
    # One merge, since the loader wants a list of them.
    vocabulary = [*letters, "<|endoftext|>", "<|im_start|>", "<|im_end|>", letters[104] + letters[105]]
    kinds = [1] * 256 + [3] * 3 + [1]
    numbers = {
        "llama.context_length": 4096,
        "llama.embedding_length": WIDTH,
        "llama.block_count": BLOCKS,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS,
        "llama.rope.dimension_count": WIDTH // HEADS,
        "llama.vocab_size": len(vocabulary),
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 258,
    }
    texts = {
        "general.architecture": "llama",
        "general.name": "tiny random",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.chat_template": TEMPLATE,
    }
    return [
        *(_field(name, STRING, _text(value)) for name, value in texts.items()),
        *(_field(name, U32, struct.pack("<I", value)) for name, value in numbers.items()),
        _field("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        _field("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
        _list("tokenizer.ggml.tokens", STRING, [_text(token) for token in vocabulary]),
        _list("tokenizer.ggml.token_type", I32, [struct.pack("<i", kind) for kind in kinds]),
        _list("tokenizer.ggml.merges", STRING, [_text(f"{letters[104]} {letters[105]}")]),
    ]


def _tensors() -> dict[str, tuple[int, ...]]:
    """Shapes, the innermost dimension first."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (WIDTH, 260), "output_norm.weight": (WIDTH,)}
    shapes["output.weight"] = (WIDTH, 260)
    for block in range(BLOCKS):
        shapes |= {f"blk.{block}.{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
        shapes |= {f"blk.{block}.attn_{name}.weight": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
        shapes |= {f"blk.{block}.ffn_{name}.weight": (WIDTH, INNER) for name in ("gate", "up")}
        shapes[f"blk.{block}.ffn_down.weight"] = (INNER, WIDTH)
    return shapes


def write_tiny_gguf(path: Path) -> Path:
    """Write the model to `path`, the same bytes each time; returns `path`."""
    dice = random.Random(0)
    fields, shapes = _fields(), _tensors()
    infos, data = b"", bytearray()
    for name, shape in shapes.items():
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        infos += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        is_norm = "norm" in name
        data += array("f", (1.0 if is_norm else dice.gauss(0, 0.08) for _ in range(size))).tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(fields)) + b"".join(fields) + infos
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
    return path
