"""Requests to a server, repeated while that may help, and what they reveal of the server.

The client works on an event loop of its own with its own thread, so that the caller may be in
another event loop, and can be interrupted: requests on the way are cancelled then. It is httpx2's,
which is imported in a fifth of the time that OpenAI's takes, and reads answers as they are.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import ApiError, ModelError, named_error
from pytest_cepbench.escapes import mask_secrets
from pytest_cepbench.models.api.endpoint import Endpoint
from pytest_cepbench.models.api.parameters import RequestLimits
from pytest_cepbench.models.api.responses import (
    SERVED,
    SYSTEM,
    check_document,
    classify_response,
    describe_body,
    is_web_page,
    read_json,
    read_models,
    server_error,
)
from pytest_cepbench.models.protocols import Reply, Usage

T = TypeVar("T")

CHAT, IMAGES, _MODELS = "chat/completions", "images/generations", "models"
"""Paths below an address."""

_LIST_TIMEOUT = 15.0  # seconds; a server with a slower list is judged by its first real request

_MOST_BYTES = 2**28  # of an answer; an image of 4096 x 4096 pixels in base64 has 64 MiB

_FIRST_WAIT = 0.25  # seconds before the first retry, doubled for each further one

_OTHER_NAMES = {"max_tokens": "max_completion_tokens"}
"""Parameters that newer servers know by another name."""

_IRRELEVANT = ("response_format",)
"""Parameters that change no answer: nothing is noted where one is not accepted."""

_NEEDED = ("logprobs", "top_logprobs")
"""Parameters without which the answer is of no use."""

IGNORED = "not honoured"
"""Field of provenance: what a server did not honour."""

_END_NOTICED = 0.5  # seconds, in which it shows that a server of the run has ended

LONGEST_NAME = 100  # letters of the name of a model


@dataclass(frozen=True)
class ApiRequest:
    """One request.

    path: below the server's address.
    body: makes what the request must say; called on a thread, since it encodes images.
    read: makes the reply of the JSON that comes back.
    optional: parameters sent as far as the server accepts them.
    """

    path: str
    body: Callable[[], Mapping[str, Any]]
    read: Callable[[Any], Reply]
    optional: Mapping[str, Any] = field(default_factory=dict)


class ApiClient:
    """Sends batches of requests to one server, and repeats them as the spec's parameters allow.

    It remembers what the server does not accept and how it calls itself. Its event loop and threads
    are closed by garbage collection.

    endpoint: where the model is served.
    limits: of its requests.
    prices: of a million tokens read, of as many written and of an image, in the user's currency.
    Raises ModelError for an address, a proxy or certificates that cannot be used.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        limits: RequestLimits,
        prices: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> None:
        from urllib.request import getproxies

        import httpx2

        headers = {"User-Agent": "pytest-cepbench"}
        if endpoint.key is not None:
            headers["Authorization"] = f"Bearer {endpoint.key}"
        try:
            self._client = client = httpx2.AsyncClient(
                base_url=endpoint.url,
                headers=headers,
                timeout=limits.timeout,
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
                # A redirect would send the image and the prompt wherever the server says.
                follow_redirects=False,
                # A proxy does not reach the server that the run has started on this machine.
                trust_env=endpoint.own is None,
                # Without a certificate of a server or proxy to check the client is made in no time.
                verify=endpoint.url.startswith("https:")
                or (endpoint.own is None and bool(getproxies())),
            )
        except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
            raise ModelError(
                f"{endpoint.name}: no client for {endpoint.url} can be made "
                f"({endpoint.clean(named_error(error))}). Correct the address, or what the "
                "environment says of proxies (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY; those of SOCKS "
                "need the package socksio) and certificates (SSL_CERT_FILE)"
            ) from None
        self._loop = loop = asyncio.new_event_loop()

        def run_loop() -> None:
            try:
                loop.run_forever()
            finally:
                loop.close()

        async def end() -> None:
            try:
                await client.aclose()
            finally:
                loop.stop()

        thread = threading.Thread(target=run_loop, name=f"openai-{endpoint.role}", daemon=True)
        thread.start()

        def close() -> None:
            if thread.is_alive():
                asyncio.run_coroutine_threadsafe(end(), loop)
                if threading.current_thread() is not thread:  # which cannot wait for itself
                    thread.join(2.0)

        weakref.finalize(self, close)
        self.endpoint = endpoint
        self._own = endpoint.own
        self._limits = limits
        self._prices = prices
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._paused_until = 0.0
        self._models: tuple[str, ...] = ()  # that the server lists
        self._has_answered = False
        self._retries = limits.retries
        self._dropped: dict[str, str] = {}  # parameter that is not accepted -> how it was sent
        self._renamed: dict[str, str] = {}
        self._remarks: tuple[str, ...] = ()

    def check(self, *, listed: bool = False) -> None:
        """Request the list of models, which costs nothing.

        listed: whether the server's list should have the model, which is remarked where it has not:
            some servers answer for any name, as whatever model they have.

        Raises ModelError for an address without a server, and for a refused key. Any other fault
        shows at the first real request.
        """
        try:
            self._models = read_models(self._run(self._ask(_MODELS, None, {})))
        except ApiError as fault:
            if fault.cause in ("unreachable", "web page") or fault.status == 401:
                raise server_error(self.endpoint, fault) from None
            return
        if listed and self._models and self.endpoint.model not in self._models:
            names = ", ".join(map(self.endpoint.clean, self._models[:3]))
            told = (
                f"{self.endpoint.name}: the server does not list this model; it lists {names}: "
                "see that what answers has the weights that the spec names"
            )
            self._remarks = (told,)

    def send_all(self, requests: Sequence[ApiRequest]) -> list[Reply]:
        """One reply for each request, in order.

        A request without an answer is a passing failure. Raises ModelError where no request is
        answered, and where every request would end like that.
        """
        if not requests:
            return []

        async def concurrently() -> list[Reply]:
            async with asyncio.TaskGroup() as group:  # ends the others where one of them raises
                tasks = [group.create_task(self._send_until_answered(each)) for each in requests]
            return [task.result() for task in tasks]

        with nullcontext() if self._own is None else self._own.unchanged():
            try:
                replies = self._run(concurrently())
            except ExceptionGroup as raised:
                raise raised.exceptions[0] from None
        if self._own is not None and any(reply.passing for reply in replies):
            time.sleep(_END_NOTICED)
            self._own.check()
        if all(reply.passing for reply in replies):
            last = replies[-1].value
            if last.kind == "unanswered" or not self._has_answered:
                # This batch has waited in vain; the cases that follow need not each wait as long.
                self._retries = 0
                listed = () if self.endpoint.model in self._models else self._models
                fault = ApiError("again", last.detail, cause="no answer")
                raise server_error(self.endpoint, fault, listed, len(requests))
        return replies

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result; an interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    async def _send_until_answered(self, request: ApiRequest) -> Reply:
        async with self._slots:
            body = await asyncio.to_thread(request.body)
            tries, waited, usage = 0, 0.0, Usage()
            while True:
                # A server that is too busy is so for all requests.
                while (held := self._paused_until - time.monotonic()) > 0:
                    await asyncio.sleep(held)
                optional = {
                    self._renamed.get(name, name): value
                    for name, value in request.optional.items()
                    if self._renamed.get(name, name) not in self._dropped
                }
                usage += Usage(requests=1, retries=min(1, usage.requests))
                begun = time.monotonic()
                try:
                    document = await self._ask(request.path, body, optional)
                    reply = await asyncio.to_thread(request.read, document)
                    return self._completed(reply, usage, images=request.path == IMAGES)
                except ApiError as error:
                    fault = error
                if self._own is not None:
                    self._own.check()
                if fault.parameter in _NEEDED:
                    fault = ApiError("fatal", fault.words, cause="logprobs")
                if fault.kind == "fatal":
                    raise server_error(self.endpoint, fault, self._models)
                if fault.kind == "parameter" and fault.parameter in optional:
                    self._drop(fault.parameter, optional[fault.parameter])
                    continue
                if fault.kind == "content":
                    return Reply(Failure("refused", self.endpoint.clean(fault.words)), usage)
                status = "" if fault.status in (None, 200) else f"{fault.status}: "
                words = self.endpoint.clean(status + fault.words)
                if fault.kind in ("rejected", "parameter"):
                    return Reply(Failure("exception", words), usage, passing=True)
                pause = fault.wait
                if not pause:  # also of a date that has passed, by the server's clock or this one
                    longest = min(self._limits.max_retry_wait, _FIRST_WAIT * 2.0 ** min(tries, 30))
                    # Random, so that requests which failed together are not repeated together.
                    pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 - not for a secret
                waited += time.monotonic() - begun + pause
                if tries >= self._retries or waited > self._limits.patience:
                    words = f"after {usage.requests} requests: {words}"
                    return Reply(Failure("unanswered", words), usage, passing=True)
                tries += 1
                if fault.kind == "throttled":
                    self._paused_until = max(self._paused_until, time.monotonic() + pause)
                else:
                    await asyncio.sleep(pause)

    async def _ask(
        self, path: str, body: Mapping[str, Any] | None, optional: Mapping[str, Any]
    ) -> Any:
        """The document that answers a request; body: None where a page is read. Raises ApiError."""
        import httpx2

        # The client's own timeout is one of silence: a body that drips would never end.
        limit = self._limits.timeout
        limit = min(limit, _LIST_TIMEOUT) if body is None else limit
        asked: dict[str, Any] = {"method": "GET", "url": path}
        if body is not None:
            asked |= {
                "method": "POST",
                "content": msgspec.json.encode({**body, **optional}),
                "headers": {"Content-Type": "application/json"},
            }
        answer = bytearray()
        try:
            async with asyncio.timeout(limit), self._client.stream(**asked) as response:
                async for piece in response.aiter_bytes():
                    answer += piece
                    if len(answer) > _MOST_BYTES:
                        raise ApiError("fatal", f"{_MOST_BYTES >> 20} MiB", cause="endless")
        except (TimeoutError, httpx2.TimeoutException):
            raise ApiError("again", f"no answer within {limit:g} s") from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:  # of a redirect, say
            cause = "unreachable" if isinstance(error, httpx2.ConnectError) else ""
            raise ApiError("again", str(error) or type(error).__name__, cause=cause) from None
        content = bytes(answer)
        if not response.is_success:
            raise classify_response(response.status_code, response.headers, content, optional)
        document = read_json(content)
        if document is None:
            words = describe_body(content)
            if is_web_page(content) and not self._has_answered:
                raise ApiError("fatal", words, cause="web page")
            raise ApiError("again", f"not JSON but {words}", 200)
        check_document(document)
        return document

    def _drop(self, parameter: str, value: Any) -> None:
        """Send a parameter that was refused under its other name, or not at all any more."""
        if parameter in _OTHER_NAMES and parameter not in self._renamed:
            self._renamed[parameter] = _OTHER_NAMES[parameter]
        elif parameter not in self._renamed:
            # A seed differs from input to input; what matters is that none was honoured.
            number = f"{value:g}" if isinstance(value, float) else value
            self._dropped[parameter] = parameter if parameter == "seed" else f"{parameter}={number}"

    def _completed(self, reply: Reply, usage: Usage, *, images: bool) -> Reply:
        """A reply with what its requests cost, and what they reveal of the server."""
        self._has_answered, self._retries = True, self._limits.retries
        # A server may say anything, also what it was sent.
        value = reply.value
        if isinstance(value, str):
            value = mask_secrets(value, {"KEY": self.endpoint.key or ""})
        elif isinstance(value, Failure):
            value = Failure(value.kind, self.endpoint.clean(value.detail))
        tokens, (price_in, price_out, price_image) = reply.usage, self._prices
        cost = (tokens.input_tokens * price_in + tokens.output_tokens * price_out) / 1e6
        usage += replace(tokens, images=int(images), cost=cost + images * price_image)
        provenance = {**reply.provenance}
        for part in [part for part in (SERVED, SYSTEM) if part in provenance]:
            provenance[part] = self.endpoint.clean(provenance[part])[:LONGEST_NAME]
        ignored = [sent for part, sent in self._dropped.items() if part not in _IRRELEVANT]
        ignored += [provenance[IGNORED]] if IGNORED in provenance else []
        if ignored:
            provenance[IGNORED] = ", ".join(ignored)
        if self._own is not None:
            provenance |= self._own.provenance
        return Reply(value, usage, provenance, remarks=self._remarks)
