"""The rollout's state and task, for its tool servers: `GET /state`, `PUT /state`, `GET /task`.

A secret of its own opens them, and opens no model. Nothing is awaited between the look at a state and its replacement,
so of two writers that have read the same version one is told to read again.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, NoReturn

from vfx.authoring.state import State, read_state
from vfx.interception.access import deny, digest, given_secret, is_json
from vfx.interception.exchange import JSON_TYPE, BodyTooLargeError, Exchange
from vfx.interception.session import Session
from vfx.trace.record import encode_record, state_data

__all__ = ["STATE_METHODS", "StateRoutes"]

STATE_METHODS: Mapping[str, tuple[str, ...]] = {"/state": ("GET", "PUT"), "/task": ("GET",)}
"""The paths, and what each takes."""

MAX_STATE_BYTES = 4 << 20
# Tools that outlive their rollout are told so, until as many others have ended.
MAX_ENDED = 4096


class _UnfitError(Exception):
    """A write that changes nothing: the status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class _Rollout:
    session: Session
    version: int = 0
    """How often the state has been written."""

    def read(self) -> tuple[bytes, str]:
        """The state as JSON, and its tag."""
        try:
            text = encode_record(state_data(self._state()))
        except (TypeError, ValueError, RecursionError) as error:
            raise _UnfitError(500, f"the state has no JSON form: {error}") from error
        return text, self._tag(text)

    def write(self, body: bytes, expected: bytes | None) -> str:
        """Replace the state; gives its new tag."""
        trace, before = self.session.trace, self._state()
        if expected is not None and not _is_match(expected, self.read()[1]):
            raise _UnfitError(412, "the state has changed since it was read: read it again")
        try:
            state = read_state(type(before), _strict(body))
            text = encode_record(state_data(state))
        except (TypeError, ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise _UnfitError(400, reason) from error
        trace.state = state
        self.version += 1
        return self._tag(text)

    def _tag(self, text: bytes) -> str:
        # The counter alone would not tell what hooks have changed in place.
        return f'"{self.version}-{blake2b(text, digest_size=12).hexdigest()}"'

    def _state(self) -> State:
        trace = self.session.trace
        if trace.state is None:
            raise _UnfitError(404, f"there is no state: {trace.task.type} names no state_type")
        return trace.state


class StateRoutes:
    """Serves the states of a server's rollouts."""

    def __init__(self) -> None:
        self._rollouts: dict[bytes, _Rollout] = {}
        self._ended: OrderedDict[bytes, None] = OrderedDict()

    def open(self, session: Session) -> None:
        """Serve the state of a rollout from now on."""
        self._rollouts[digest(session.state_key.encode())] = _Rollout(session)

    def close(self, session: Session) -> None:
        """Serve it no longer: nothing that is still on its way changes it."""
        key = digest(session.state_key.encode())
        del self._rollouts[key]
        self._ended[key] = None
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    async def serve(self, exchange: Exchange) -> None:
        """Answer a request to one of the paths."""
        methods = STATE_METHODS[exchange.path]
        if exchange.method not in methods:
            allowed = ", ".join(methods)
            await exchange.refuse(405, f"this path takes {' and '.join(methods)} only", allow=allowed)
        elif exchange.method == "PUT" and not is_json(exchange):
            await exchange.refuse(415, "the content type must be application/json")
        elif not self._is_known(exchange):
            await deny(exchange)
        else:
            try:
                await self._act(exchange)
            except _UnfitError as error:
                await exchange.refuse(error.status, str(error))

    def _is_known(self, exchange: Exchange) -> bool:
        secret = given_secret(exchange)
        key = digest(secret)
        rollout = self._rollouts.get(key)
        if rollout is None:
            return key in self._ended
        return compare_digest(secret, rollout.session.state_key.encode())

    def _rollout(self, exchange: Exchange) -> _Rollout:
        rollout = self._rollouts.get(digest(given_secret(exchange)))
        if rollout is None or rollout.session.is_closed:
            raise _UnfitError(409, "the rollout has ended")
        return rollout

    async def _act(self, exchange: Exchange) -> None:
        rollout = self._rollout(exchange)
        if exchange.path == "/task":
            await exchange.reply(200, encode_record(rollout.session.trace.task.data))
        elif exchange.method == "GET":
            text, tag = rollout.read()
            await exchange.reply(200, text, [JSON_TYPE, ("etag", tag)])
        else:
            exchange.max_body_bytes = MAX_STATE_BYTES
            try:
                body = await exchange.read_body()
            except BodyTooLargeError:
                raise _UnfitError(413, f"a state has at most {MAX_STATE_BYTES} bytes") from None
            if body is None:
                return
            # The rollout may have ended while the body came.
            tag = self._rollout(exchange).write(body, exchange.headers.get(b"if-match"))
            await exchange.start(204, [("etag", tag)])
            await exchange.finish()


def _is_match(expected: bytes, tag: str) -> bool:
    return any(given.strip() in (b"*", tag.encode()) for given in expected.split(b","))


def _strict(body: bytes) -> Any:
    return json.loads(body, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number that JSON knows")
