"""The way to a server: the official client, on an event loop of its own.

The loop has a thread, so that whoever asks may be in another event loop, and can be interrupted: what
was on the way is cancelled then.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pytest_cepbench.errors import MissingDependencyError
from pytest_cepbench.models.api.endpoint import Endpoint
from pytest_cepbench.models.api.error_codes import ApiFault, fault_of
from pytest_cepbench.models.api.error_messages import UNREACHABLE
from pytest_cepbench.models.api.logs import keep_out_of_logs
from pytest_cepbench.models.system_limits import usable_cores

if TYPE_CHECKING:
    from openai import AsyncOpenAI

What = Literal["chat", "images", "models"]
"""What is asked for: a text, an image, the list of models."""

T = TypeVar("T")

_LIST_TIMEOUT = 15.0  # seconds; where the list of models takes longer, a real request will tell

_MOST_THREADS = 4  # that encode and decode images


def load_client(endpoint: Endpoint, timeout: float) -> AsyncOpenAI:
    """The official client. Raises MissingDependencyError where it is not installed."""
    try:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient
    except ImportError as error:
        msg = 'an openai: model needs the openai client: pip install "pytest-cepbench[openai]"'
        raise MissingDependencyError(msg) from error
    client = AsyncOpenAI(
        # A redirect would take the image, and what was asked, to wherever the server says.
        http_client=DefaultAsyncHttpxClient(follow_redirects=False),
        api_key=endpoint.api_key,
        base_url=endpoint.address.reveal(),
        default_headers=endpoint.headers,
        timeout=timeout,
        max_retries=0,  # its own know nothing of the other requests
    )
    keep_out_of_logs(endpoint.secrets)  # by now its libraries have their loggers
    return client


class Connection:
    """Holds the client, its event loop and the threads that see to images; closed when let go of."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        self._client = load_client(endpoint, timeout)
        self._timeout = timeout
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(
            min(_MOST_THREADS, usable_cores()), thread_name_prefix="openai-images"
        )
        thread = threading.Thread(
            target=_live, args=(self._loop,), name=f"openai-{endpoint.role}", daemon=True
        )
        thread.start()
        weakref.finalize(self, _close, self._client, self._loop, self._pool, thread)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something that is done on the loop; an interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    async def on_thread(self, call: Callable[[], T]) -> T:
        """What a function gives that would hold the loop up."""
        return await self._loop.run_in_executor(self._pool, call)

    async def send(
        self, what: What, body: Mapping[str, Any], optional: Mapping[str, Any]
    ) -> bytes | ApiFault:
        """The body of the answer to one request, or why there is none.

        optional: parameters beside the body, which the server may not know.
        """
        import openai

        limit = min(self._timeout, _LIST_TIMEOUT) if what == "models" else self._timeout
        try:
            async with asyncio.timeout(limit):
                return await self._request(what, body, optional)
        except openai.APIStatusError as error:
            content, headers = error.response.content, error.response.headers
            return fault_of(error.status_code, headers, content, optional)
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


def _live(loop: asyncio.AbstractEventLoop) -> None:
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
    """End everything. Not waited for on the loop's own thread, where the last reference may be dropped."""
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
