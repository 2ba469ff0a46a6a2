"""One huge call beside small ones: 60 MiB up and 30 MiB down, the memory it takes, and how long the small ones wait.

The interception is in this process; provider and programs are in others.
"""

import statistics
import subprocess
import sys
import threading
import time

import anyio
import anyio.to_thread
from running import provider
from serving import new_session, resident_kib

from vfx.clients.base import HttpSettings
from vfx.clients.http import HttpClient
from vfx.interception.server import Server

MIB = 1 << 20
ANSWER_BYTES = 30 * MIB
SMALL_CALLS = """
import http.client, json, sys, time
port, key = int(sys.argv[1]), sys.argv[2]
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
connection = http.client.HTTPConnection("127.0.0.1", port)
headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
while True:
    start = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, headers)
    connection.getresponse().read()
    print((time.perf_counter() - start) * 1000, flush=True)
    time.sleep(0.002)
"""
HUGE_CALL = """
import http.client, json, sys
port, key = int(sys.argv[1]), sys.argv[2]
parts = [{"type": "image_url", "image_url": {"url": "data:," + "A" * (5 << 20)}} for _ in range(12)]
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]})
connection = http.client.HTTPConnection("127.0.0.1", port)
headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
connection.request("POST", "/v1/chat/completions", body, headers)
answer = connection.getresponse()
print(answer.status, len(answer.read()))
"""


async def main() -> None:
    with provider(0.0, 0.0, 10, ANSWER_BYTES) as base_url:
        client = HttpClient(HttpSettings(base_url=base_url, api_key_var=None))
        async with client.serving(), anyio.create_task_group() as group:
            server = Server(client)
            await group.start(server.run)
            await measure(server)
            server.stop()


async def measure(server: Server) -> None:
    port = server.url.rpartition(":")[2]
    async with server.slot(new_session(0)) as other:
        small = [sys.executable, "-c", SMALL_CALLS, port, other.api_key]
        with subprocess.Popen(small, stdout=subprocess.PIPE, text=True) as program:  # noqa: ASYNC220 - likewise
            await anyio.sleep(1)
            before = peak = resident_kib() / 1024
            is_over = threading.Event()

            def watch() -> None:
                nonlocal peak
                while not is_over.wait(0.002):
                    peak = max(peak, resident_kib() / 1024)

            watcher = threading.Thread(target=watch)
            watcher.start()
            async with server.slot(new_session(0)) as slot:
                start = time.perf_counter()
                done = await anyio.run_process([sys.executable, "-c", HUGE_CALL, port, slot.api_key])
                took = time.perf_counter() - start
            is_over.set()
            watcher.join()
            await anyio.sleep(1)
            after = resident_kib() / 1024
            program.kill()
            assert program.stdout is not None
            waits = [float(line) for line in program.stdout.read().split()[:-1]]
    print(f"huge call: {done.stdout.decode().strip()} bytes after {took:.2f} s")
    print(
        f"memory: {before:.0f} MiB before, {peak:.0f} at most ({(peak - before) / 60:.1f} x 60 MiB), {after:.0f} after"
    )
    print(f"small calls: median {statistics.median(waits):.1f} ms, longest {max(waits):.0f} ms, of {len(waits)}")


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
