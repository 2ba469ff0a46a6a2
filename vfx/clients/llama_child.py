"""The embedded model's process: llama.cpp's server on loopback, alive as long as its stdin is open.

A process of its own, since a native crash must not take the run along. Imports nothing of vfx: run by path, it is ready
sooner. Reads one JSON line (the fields of `local._Start`), writes one JSON line: `address`, or `error` with what to do.
"""

import hashlib
import importlib
import json
import os
import sys
from typing import Any

__all__: list[str] = []


def main() -> None:
    """Serve until the parent closes our stdin, as it also does by dying."""
    # Native code prints where it likes; only this descriptor is the parent's.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    start: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    try:
        server = _serve(start)
    except Exception as error:  # noqa: BLE001 - the parent tells the user
        print(json.dumps({"error": f"{error}"}), file=answers, flush=True)
        os._exit(1)
    print(json.dumps({"address": server.listening_address}), file=answers, flush=True)
    sys.stdin.buffer.read()
    # Not by way of the server's destructor: it would wait for the answers under way.
    os._exit(0)


def _serve(start: dict[str, Any]) -> Any:
    if start["sha256"]:
        with open(start["model"], "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != start["sha256"]:
            raise ValueError(
                f"{start['model']} is damaged: its SHA-256 is {digest[:12]}…, run `vfx model install` again"
            )
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = start["model"], {start["alias"]}
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [start["key"]]
    params.n_parallel, params.n_ctx = start["slots"], start["context"] * start["slots"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = start["threads"]
    params.n_predict, params.n_gpu_layers, params.verbosity = start["max_tokens"], 0, -1
    # A reused prompt is computed in other batches: the same request would give other numbers, then another text.
    params.cache_prompt, params.cache_ram_mib = False, 0
    params.ui, params.endpoint_slots, params.cors_origins = False, False, ""
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
