"""The connection to a server: the official client on its own event loop, and a limit of requests.

The loop has a thread, so that the caller may be in another event loop, and can be interrupted:
requests on the way are cancelled then.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.models.api.api_errors import UNREACHABLE, ApiFault, classify_response
from pytest_cepbench.models.api.endpoint import Endpoint
from pytest_cepbench.models.api.redaction import redact_logs
from pytest_cepbench.models.system_limits import usable_cores

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class RequestLimiter:
    """Limits the requests in flight: halved when the server is too busy, raised slowly by
    successes.

    most: highest number of requests in flight.
    rpm: most requests per minute; None is unlimited.
    One limit holds for all requests of an event loop: a server that is too busy is so for all of
    them.
    """

    def __init__(self, most: int, rpm: float | None = None) -> None:
        self._most = most
        self._limit = float(most)
        self._in_flight = 0
        self._slot_free = asyncio.Event()
        self._queue = asyncio.Lock()  # slots are given in the order of the requests
        self._spacing = 60.0 / rpm if rpm else 0.0
        self._next_start = 0.0
        self._paused_until = 0.0
        self._lowered_at = 0.0

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return max(1, int(self._limit))

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[float]:
        """Wait for a slot and hold it; yields the monotonic time of its start."""
        async with self._queue:
            await self._wait()
            self._in_flight += 1
            now = time.monotonic()
            self._next_start = max(now, self._next_start) + self._spacing
        try:
            yield now
        finally:
            self._in_flight -= 1
            self._slot_free.set()

    async def _wait(self) -> None:
        while True:
            pause = max(self._paused_until, self._next_start) - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            elif self._in_flight >= self.limit:
                self._slot_free.clear()
                await self._slot_free.wait()
            else:
                return

    def record_success(self) -> None:
        """Raise the limit by one after as many successes as there are slots."""
        self._limit = min(self._most, self._limit + 1.0 / self._limit)

    def record_throttling(self, started: float, wait: float) -> None:
        """Halve the limit and pause all requests for `wait` seconds.

        started: of the refused request. Requests that were in flight together lower the limit once.
        """
        now = time.monotonic()
        self._paused_until = max(self._paused_until, now + wait)
        if started >= self._lowered_at:
            self._limit = max(1.0, self._limit / 2)
            self._lowered_at = now


What = Literal["chat", "images", "models"]
"""The kind of request: for a text, for an image, for the list of models."""

T = TypeVar("T")

_LIST_TIMEOUT = 15.0  # seconds; a server with a slower list is judged by its first real request

_MOST_THREADS = 4  # that encode and decode images


def load_client(endpoint: Endpoint, timeout: float) -> AsyncOpenAI:
    """The official client. Raises MissingDependencyError where it is not installed."""
    try:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient
    except ImportError as error:
        raise MissingDependencyError(
            'an openai: model needs the openai client: pip install "pytest-cepbench[openai]"'
        ) from error
    client = AsyncOpenAI(
        http_client=DefaultAsyncHttpxClient(
            # A redirect would send the image and the prompt wherever the server says.
            follow_redirects=False,
            # A proxy does not reach the server that the run has started on this machine.
            trust_env=endpoint.label is None,
        ),
        api_key=endpoint.api_key,
        base_url=endpoint.address.reveal(),
        default_headers=endpoint.headers,
        timeout=timeout,
        max_retries=0,  # the client does not know of the other requests
    )
    redact_logs(endpoint.secrets)  # its libraries have made their loggers by now
    return client


class Connection:
    """The client, its event loop and threads for images; closed by garbage collection."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self._client = load_client(endpoint, timeout)
        self._timeout = timeout
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(
            min(_MOST_THREADS, usable_cores()), thread_name_prefix="openai-images"
        )
        thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name=f"openai-{endpoint.role}", daemon=True
        )
        thread.start()
        weakref.finalize(self, _close, self._client, self._loop, self._pool, thread)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result; an interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    async def on_thread(self, call: Callable[[], T]) -> T:
        """The result of a function that would block the loop."""
        return await self._loop.run_in_executor(self._pool, call)

    async def send(
        self, what: What, body: Mapping[str, Any], optional: Mapping[str, Any]
    ) -> bytes | ApiFault:
        """The body of the server's response, or the reason why there is none.

        what: the kind of request.
        body: its JSON.
        optional: parameters that the server may not know.
        """
        import openai

        limit = min(self._timeout, _LIST_TIMEOUT) if what == "models" else self._timeout
        try:
            async with asyncio.timeout(limit):
                return await self._request(what, body, optional)
        except openai.APIStatusError as error:
            content, headers = error.response.content, error.response.headers
            return classify_response(error.status_code, headers, content, optional)
        except (TimeoutError, openai.APITimeoutError):
            return ApiFault("again", f"no answer within {limit:g} s")
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            refused = type(cause).__name__ == "ConnectError"
            words = str(cause) or type(cause).__name__
            return ApiFault("again", words, code=UNREACHABLE if refused else "")

    async def _request(
        self, what: What, body: Mapping[str, Any], optional: Mapping[str, Any]
    ) -> bytes:
        # Raw answers: the client's own reading makes objects out of whatever was sent.
        content: bytes
        if what == "chat":
            chat = self._client.chat.completions.with_raw_response
            # The messages as they are: the client would walk through them, a quarter of its time.
            whole = {**body, **optional}
            content = (
                await chat.create(model=body["model"], messages=[], extra_body=whole)
            ).content
        elif what == "images":
            images = self._client.images.with_raw_response
            content = (await images.generate(**body, extra_body=dict(optional))).content
        else:
            content = (await self._client.models.with_raw_response.list()).content
        return content


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _close(
    client: AsyncOpenAI,
    loop: asyncio.AbstractEventLoop,
    pool: ThreadPoolExecutor,
    thread: threading.Thread,
) -> None:
    """End loop, client and threads; without waiting on the loop's own thread."""
    pool.shutdown(wait=False, cancel_futures=True)

    async def end() -> None:
        try:
            await client.close()
        finally:
            loop.stop()

    if thread.is_alive():
        asyncio.run_coroutine_threadsafe(end(), loop)
        if threading.current_thread() is not thread:
            thread.join(2.0)
