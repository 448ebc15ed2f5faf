"""Requests that are asked again: how long, in whose turn, and what is left out meanwhile."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import NoAnswerError, PointerError
from pytest_cepbench.models.api import error_messages
from pytest_cepbench.models.api.capabilities import ServerCapabilities
from pytest_cepbench.models.api.endpoint import Endpoint
from pytest_cepbench.models.api.error_codes import (
    ApiFault,
    error_inside,
    in_words,
    is_web_page,
    read_json,
)
from pytest_cepbench.models.api.limiter import RequestLimiter
from pytest_cepbench.models.api.request_params import ServerParams
from pytest_cepbench.models.api.responses import ApiResponse, read_models
from pytest_cepbench.models.api.transport import Connection, What
from pytest_cepbench.models.protocols import Reply, Usage

_FIRST_WAIT = 0.25  # seconds before the first retry, doubled for each further one

_AHEAD = 2  # requests made ready, for each that may be on the way

_CONNECT_TRIES = 2  # before an address at the start is taken for a wrong one


@dataclass(frozen=True)
class ApiRequest:
    """One request.

    body: makes what it must say; on a thread, since it encodes images. optional: what it says besides,
    where the server takes it. read: makes the answer of the JSON that comes back.
    """

    what: What
    body: Callable[[], Mapping[str, Any]]
    read: Callable[[Any], ApiResponse]
    optional: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Outcome:
    """What a call came to; answered: whether the server dealt with it."""

    reply: Reply
    answered: bool


class ApiClient:
    """A server that is asked for many answers at once. price: of one image."""

    def __init__(self, endpoint: Endpoint, params: ServerParams, price: float = 0.0) -> None:
        self._endpoint = endpoint
        self._params = params
        self._price = price
        self._connection = Connection(endpoint, params.timeout)
        self._limiter = RequestLimiter(params.concurrency, params.rpm)
        # Images are encoded while the requests before them are on the way; not all of a batch, whose
        # encoded images may be large.
        self._ahead = asyncio.Semaphore(_AHEAD * params.concurrency)
        self._listener = ServerCapabilities(endpoint)
        self._listed: tuple[str, ...] = ()
        self._known = False  # whether the server has ever answered
        self._retries = params.retries

    def check(self) -> None:
        """Ask for the list of models, which costs nothing.

        Raises ModelError for an address where no server is, and for a key that is refused. Where the
        list does not tell, the first real request will.
        """
        for left in reversed(range(_CONNECT_TRIES)):
            found = self._connection.run(self._connection.send("models", {}, {}))
            if not (isinstance(found, ApiFault) and found.code == error_messages.UNREACHABLE):
                break
            if not left:
                raise error_messages.unreachable(self._endpoint, found)
        if isinstance(found, ApiFault):
            if found.status == 401:
                raise error_messages.fatal(self._endpoint, found)
        elif is_web_page(found):
            raise error_messages.web_page(self._endpoint, in_words(found))
        else:
            self._listed = read_models(read_json(found))

    def ask(self, calls: Sequence[ApiRequest]) -> list[Reply]:
        """One reply for each call, in order.

        A call that is not answered is a passing failure. Raises ModelError where not one of them is
        answered, and where every call would end like that.
        """
        if not calls:
            return []
        outcomes = self._connection.run(self._ask_all(calls))
        if isinstance(outcomes, Exception):
            raise outcomes from None
        if not any(one.answered for one in outcomes):
            last = outcomes[-1].reply.value
            if last.kind == "unanswered" or not self._known:
                # It was waited for once; the cases that follow shall not each wait as long.
                self._retries = 0
                raise error_messages.silent(self._endpoint, len(calls), last.detail, self._listed)
        return [one.reply for one in outcomes]

    async def _ask_all(self, calls: Sequence[ApiRequest]) -> list[_Outcome] | Exception:
        tasks = [asyncio.ensure_future(self._ask(call)) for call in calls]
        try:
            return await asyncio.gather(*tasks)
        except Exception as error:  # noqa: BLE001 - handed over whole, and raised by who waits
            return error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, call: ApiRequest) -> _Outcome:
        async with self._ahead:
            return await self._ask_until(call, await self._connection.on_thread(call.body))

    async def _ask_until(self, call: ApiRequest, body: Mapping[str, Any]) -> _Outcome:
        tries, waited, usage = 0, 0.0, Usage()
        while True:
            async with self._limiter.place() as taken:
                optional = self._listener.allowed(call.optional)
                got = await self._try(call, body, optional)
            usage += Usage(requests=1, retries=min(1, usage.requests))
            if isinstance(got, ApiResponse):
                self._limiter.went_well()
                return self._answered(call, got, usage)
            if got.kind == "fatal":
                raise error_messages.fatal(self._endpoint, got, self._listed)
            if got.kind == "parameter" and got.parameter in optional:
                self._listener.leave_out(got.parameter, optional[got.parameter], got.words)
                continue
            if got.kind == "content":
                return self._gave_up(Failure("refused", self._endpoint.clean(got.words)), usage)
            if got.kind in ("rejected", "parameter"):
                return self._gave_up(Failure("exception", self._words(got)), usage, answered=False)
            pause = self._pause(tries) if got.wait is None else got.wait
            waited += time.monotonic() - taken
            if tries >= self._retries or waited + pause > self._params.patience:
                words = f"after {usage.requests} requests: {self._words(got)}"
                return self._gave_up(Failure("unanswered", words), usage, answered=False)
            if got.kind == "throttled":
                self._limiter.throttled(taken, got.wait or 0.0)
            tries, waited = tries + 1, waited + pause
            await asyncio.sleep(pause)

    async def _try(
        self, call: ApiRequest, body: Mapping[str, Any], optional: Mapping[str, Any]
    ) -> ApiResponse | ApiFault:
        got = await self._connection.send(call.what, body, optional)
        if isinstance(got, ApiFault):
            return got
        document = read_json(got)
        if document is None:
            if is_web_page(got) and not self._known:
                raise error_messages.web_page(self._endpoint, in_words(got))
            return ApiFault("again", f"not JSON but {in_words(got)}", 200)
        fault = error_inside(document)
        if fault is not None:
            return fault
        try:
            return await self._connection.on_thread(lambda: call.read(document))
        except NoAnswerError as error:
            return ApiFault("again", str(error), 200)
        except PointerError:
            raise error_messages.pointer(self._endpoint) from None

    def _answered(self, call: ApiRequest, answer: ApiResponse, usage: Usage) -> _Outcome:
        value = answer.value
        if isinstance(value, str):
            # A server may say anything, also what it was sent.
            for secret in self._endpoint.secrets:
                value = secret.out_of(value)
        elif isinstance(value, Failure):
            value = Failure(value.kind, self._endpoint.clean(value.detail))
        drawn = int(call.what == "images")
        read, written = answer.tokens
        cost = (read * self._params.price_in + written * self._params.price_out) / 1e6
        usage += Usage(0, 0, read, written, drawn, cost + drawn * self._price)
        provenance, remarks = self._listener.hear(answer)
        self._known, self._retries = True, self._params.retries
        return _Outcome(Reply(value, usage, provenance, remarks=remarks), answered=True)

    def _gave_up(self, failure: Failure, usage: Usage, *, answered: bool = True) -> _Outcome:
        return _Outcome(Reply(failure, usage, passing=not answered), answered)

    def _words(self, fault: ApiFault) -> str:
        status = "" if fault.status in (None, 200) else f"{fault.status}: "
        return self._endpoint.clean(status + fault.words)

    def _pause(self, tries: int) -> float:
        longest = min(self._params.max_retry_wait, _FIRST_WAIT * 2.0 ** min(tries, 30))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - so that not all come back at once
