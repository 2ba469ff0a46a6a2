"""A harness for verifiers that makes its one call from inside the runner, or from a bare child with BENCH_CHILD=1.

So a run shows what verifiers itself costs; its own harness starts a program that imports an SDK.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import verifiers.v1 as vf

CHILD = str(Path(__file__).parent.parent / "one_call.py")


class CallConfig(vf.HarnessConfig):
    pass


class CallHarness(vf.Harness[CallConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):  # noqa: ANN001, ANN201
        if os.environ.get("BENCH_CHILD"):
            environment = {"OPENAI_BASE_URL": endpoint.rstrip("/"), "OPENAI_API_KEY": secret}
            return await runtime.run([sys.executable, "-S", "-E", CHILD], environment)
        parts = urlsplit(endpoint.rstrip("/") + "/chat/completions")
        body = json.dumps({"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}).encode()
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = f"POST {parts.path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {secret}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
        is_ok = b" 200 " in answer[:20]
        return vf.ProgramResult(exit_code=0 if is_ok else 1, stdout="", stderr=answer[-300:].decode(errors="replace"))


__all__ = ["CallHarness"]
