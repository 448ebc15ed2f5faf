"""Requests to a server, repeated while that may help, and what they reveal of the server."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pytest_cepbench.artifacts import Failure
from pytest_cepbench.errors import NoAnswerError, NoLogprobsError, PointerError
from pytest_cepbench.models.api import api_errors
from pytest_cepbench.models.api.api_errors import (
    ApiFault,
    describe_body,
    fault_in_document,
    is_web_page,
    read_json,
)
from pytest_cepbench.models.api.endpoint import Endpoint, ServerParams
from pytest_cepbench.models.api.redaction import without_secrets
from pytest_cepbench.models.api.responses import ApiResponse, read_models
from pytest_cepbench.models.api.transport import Connection, RequestLimiter, What
from pytest_cepbench.models.protocols import CUT, Reply, RoleName, Usage

_FIRST_WAIT = 0.25  # seconds before the first retry, doubled for each further one

_AHEAD = 2  # requests prepared, for each that may be in flight

_CONNECT_TRIES = 2  # before an unreachable address is taken for a wrong one

_OTHER_NAMES = {"max_tokens": "max_completion_tokens"}
"""Parameters that newer servers know by another name."""

_IRRELEVANT = ("response_format",)
"""Parameters that change no answer: no remark where one is not accepted."""

_SERVED, _IGNORED = "server served", "not honoured"
"""Fields of provenance: the name under which a server answered, and what it did not honour."""

_SHOWN_NAMES = 3

_END_NOTICED = 0.5  # seconds, in which it shows that a server of the run has ended

_LONGEST_NAME = 100


@dataclass(frozen=True)
class ApiRequest:
    """One request.

    what: the kind of answer that is wanted.
    body: makes what the request must say; called on a thread, since it encodes images.
    read: makes the response of the JSON that comes back.
    optional: parameters sent as far as the server accepts them.
    required: those of them without which the answer is of no use.
    """

    what: What
    body: Callable[[], Mapping[str, Any]]
    read: Callable[[Any], ApiResponse]
    optional: Mapping[str, Any] = field(default_factory=dict)
    required: Collection[str] = ()


class OwnServer(Protocol):
    """A server that the run has started itself."""

    @property
    def provenance(self) -> Mapping[str, str]:
        """Kept beside each of its results."""
        ...

    def check(self) -> None:
        """Raise ModelError where it has ended: no other try can succeed."""
        ...

    def unchanged(self) -> AbstractContextManager[None]:
        """Raise IdentityError where its files change while it answers, if that can matter."""
        ...


@dataclass(frozen=True)
class _RequestResult:
    """The reply to a request; answered: whether the server dealt with the request."""

    reply: Reply
    answered: bool


class ApiClient:
    """Sends batches of requests to one server, and repeats them as the spec's parameters allow.

    endpoint: where the model is served.
    params: limits, waits and prices of the spec.
    image_price: of one image, in the user's currency.
    own: the server, where the run has started it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        params: ServerParams,
        image_price: float = 0.0,
        own: OwnServer | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._own = own
        self._params = params
        self._image_price = image_price
        self._connection = Connection(endpoint, params.timeout)
        self._limiter = RequestLimiter(params.concurrency, params.rpm)
        # Images are encoded while earlier requests are in flight; not those of a whole batch, whose
        # encoded images may be large.
        self._prepared = asyncio.Semaphore(_AHEAD * params.concurrency)
        self._capabilities = ServerCapabilities(endpoint)
        self._models: tuple[str, ...] = ()  # that the server lists
        self._has_answered = False
        self._retries = params.retries

    def check(self) -> None:
        """Request the list of models, which costs nothing.

        Raises ModelError for an address without a server, and for a refused key. Any other fault
        shows at the first real request.
        """
        for tries_left in reversed(range(_CONNECT_TRIES)):
            result = self._connection.run(self._connection.send("models", {}, {}))
            if not (isinstance(result, ApiFault) and result.code == api_errors.UNREACHABLE):
                break
            if not tries_left:
                raise api_errors.unreachable_error(self._endpoint, result)
        if isinstance(result, ApiFault):
            if result.status == 401:
                raise api_errors.fatal_error(self._endpoint, result)
        elif is_web_page(result):
            raise api_errors.web_page_error(self._endpoint, describe_body(result))
        else:
            self._models = read_models(read_json(result))

    def send_all(self, requests: Sequence[ApiRequest]) -> list[Reply]:
        """One reply for each request, in order.

        A request without an answer is a passing failure. Raises ModelError where no request is
        answered, and where every request would end like that.
        """
        if not requests:
            return []
        with nullcontext() if self._own is None else self._own.unchanged():
            results = self._connection.run(self._send_concurrently(requests))
            if isinstance(results, Exception):
                raise results from None
        if self._own is not None and not all(result.answered for result in results):
            time.sleep(_END_NOTICED)
            self._own.check()
        if not any(result.answered for result in results):
            last = results[-1].reply.value
            if last.kind == "unanswered" or not self._has_answered:
                # This batch has waited in vain; the cases that follow need not each wait as long.
                self._retries = 0
                raise api_errors.no_answer_error(
                    self._endpoint, len(requests), last.detail, self._models
                )
        return [result.reply for result in results]

    async def _send_concurrently(
        self, requests: Sequence[ApiRequest]
    ) -> list[_RequestResult] | Exception:
        tasks = [asyncio.ensure_future(self._prepare_and_send(request)) for request in requests]
        try:
            return await asyncio.gather(*tasks)
        except Exception as error:  # noqa: BLE001 - handed over whole, and raised by the caller
            return error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _prepare_and_send(self, request: ApiRequest) -> _RequestResult:
        async with self._prepared:
            body = await self._connection.on_thread(request.body)
            return await self._send_until_answered(request, body)

    async def _send_until_answered(
        self, request: ApiRequest, body: Mapping[str, Any]
    ) -> _RequestResult:
        tries, waited, usage = 0, 0.0, Usage()
        while True:
            async with self._limiter.slot() as started:
                optional = self._capabilities.accepted(request.optional)
                result = await self._send_once(request, body, optional)
            usage += Usage(requests=1, retries=min(1, usage.requests))
            if isinstance(result, ApiResponse):
                self._limiter.record_success()
                return self._succeeded(request, result, usage)
            if result.kind == "fatal":
                raise api_errors.fatal_error(self._endpoint, result, self._models)
            if result.kind == "parameter" and result.parameter in optional:
                value = optional[result.parameter]
                self._capabilities.drop_parameter(result.parameter, value, result.words)
                continue
            if result.kind == "content":
                return self._failed(Failure("refused", self._endpoint.clean(result.words)), usage)
            if result.kind in ("rejected", "parameter"):
                failure = Failure("exception", self._describe(result))
                return self._failed(failure, usage, answered=False)
            pause = result.wait
            if pause is None:
                longest = min(self._params.max_retry_wait, _FIRST_WAIT * 2.0 ** min(tries, 30))
                # Random, so that requests which failed together are not repeated together.
                pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it
            waited += time.monotonic() - started
            if tries >= self._retries or waited + pause > self._params.patience:
                words = f"after {usage.requests} requests: {self._describe(result)}"
                return self._failed(Failure("unanswered", words), usage, answered=False)
            if result.kind == "throttled":
                self._limiter.record_throttling(started, result.wait or 0.0)
            tries, waited = tries + 1, waited + pause
            await asyncio.sleep(pause)

    async def _send_once(
        self, request: ApiRequest, body: Mapping[str, Any], optional: Mapping[str, Any]
    ) -> ApiResponse | ApiFault:
        content = await self._connection.send(request.what, body, optional)
        if isinstance(content, ApiFault):
            if self._own is not None:
                self._own.check()
            if content.parameter in request.required:
                raise api_errors.logprobs_error(self._endpoint, content.words)
            return content
        document = read_json(content)
        if document is None:
            if is_web_page(content) and not self._has_answered:
                raise api_errors.web_page_error(self._endpoint, describe_body(content))
            return ApiFault("again", f"not JSON but {describe_body(content)}", 200)
        fault = fault_in_document(document)
        if fault is not None:
            return fault
        try:
            return await self._connection.on_thread(lambda: request.read(document))
        except NoAnswerError as error:
            return ApiFault("again", str(error), 200)
        except PointerError:
            raise api_errors.pointer_error(self._endpoint) from None
        except NoLogprobsError:
            words = "its answers have none"
            raise api_errors.logprobs_error(self._endpoint, words) from None

    def _succeeded(
        self, request: ApiRequest, response: ApiResponse, usage: Usage
    ) -> _RequestResult:
        value = self._without_secrets(response.value)
        images = int(request.what == "images")
        if isinstance(value, list):
            images = sum(step.image is not None for step in value)
        tokens_in, tokens_out = response.tokens
        cost = (tokens_in * self._params.price_in + tokens_out * self._params.price_out) / 1e6
        cost += images * self._image_price
        usage += Usage(0, 0, tokens_in, tokens_out, images, cost)
        provenance, remarks = self._capabilities.record(response)
        provenance |= response.provenance
        if self._own is not None:
            provenance |= self._own.provenance
        self._has_answered, self._retries = True, self._params.retries
        return _RequestResult(Reply(value, usage, provenance, remarks=remarks), answered=True)

    def _without_secrets(self, value: Any) -> Any:
        """A result without secrets: a server may say anything, also what it was sent."""
        if isinstance(value, str):
            for secret in self._endpoint.secrets:
                value = secret.remove_from(value)
        elif isinstance(value, Failure):
            return Failure(value.kind, self._endpoint.clean(value.detail))
        elif isinstance(value, list):
            return [replace(step, text=self._without_secrets(step.text)) for step in value]
        return value

    def _failed(self, failure: Failure, usage: Usage, *, answered: bool = True) -> _RequestResult:
        return _RequestResult(Reply(failure, usage, passing=not answered), answered)

    def _describe(self, fault: ApiFault) -> str:
        status = "" if fault.status in (None, 200) else f"{fault.status}: "
        return self._endpoint.clean(status + fault.words)


class ServerCapabilities:
    """Knowledge of one server in this process: accepted parameters and reported names."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._dropped: dict[str, str] = {}  # parameter -> how it was sent
        self._renamed: dict[str, str] = {}
        self._remarks: dict[str, None] = {}
        self._reported: dict[str, str] = {}
        self._changed: set[str] = set()
        self._cut = 0

    def accepted(self, optional: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that the server accepts, under the names that it knows."""
        named = {self._renamed.get(name, name): value for name, value in optional.items()}
        return {name: value for name, value in named.items() if name not in self._dropped}

    def drop_parameter(self, parameter: str, value: Any, words: str) -> None:
        """Send a parameter that the server refused under its other name, or not at all any more.

        value: that was refused. words: the server's reason.
        """
        if parameter in _OTHER_NAMES and parameter not in self._renamed:
            self._renamed[parameter] = _OTHER_NAMES[parameter]
            return
        if parameter in self._dropped or parameter in self._renamed:
            return  # another request in flight met the same refusal
        # A seed differs from input to input; what matters is that none was honoured.
        number = f"{value:g}" if isinstance(value, float) else value
        shown = parameter if parameter == "seed" else f"{parameter}={number}"
        self._dropped[parameter] = shown
        if parameter not in _IRRELEVANT:
            self._remarks[
                f"{self._endpoint.name}: the server does not take {shown} "
                f"({self._endpoint.clean(words)}): it was left out"
            ] = None

    def record(self, response: ApiResponse) -> tuple[dict[str, str], tuple[str, ...]]:
        """Provenance of a response's result, and remarks on it for people."""
        remarks = list(self._remarks)
        reported = {
            name: self._endpoint.clean(text)[:_LONGEST_NAME]
            for name, text in response.reported.items()
        }
        remarks += self._changes(reported)
        ignored = [shown for name, shown in self._dropped.items() if name not in _IRRELEVANT]
        if response.deviation:
            ignored.append(response.deviation)
            remarks.append(f"{self._endpoint.name}: the server gave {response.deviation}")
        if response.cut:
            self._cut += 1
            if str(self._cut).strip("0") == "1":  # 1, 10, 100, ...
                remarks.append(
                    f"{self._endpoint.name}: answers cut off by max_tokens so far: {self._cut}; a "
                    "larger one would leave them whole"
                )
        provenance = {f"server {name}": text for name, text in reported.items()}
        if ignored:
            provenance[_IGNORED] = ", ".join(ignored)
        if response.cut:
            provenance |= CUT
        return provenance, tuple(remarks)

    def _changes(self, reported: Mapping[str, str]) -> list[str]:
        """Remarks where the server calls itself otherwise than before: it may be another model."""
        remarks = []
        for name, text in reported.items():
            before = self._reported.setdefault(name, text)
            if text != before and name not in self._changed:
                self._changed.add(name)
                remarks.append(
                    f"{self._endpoint.name}: what answers has changed during the run: its {name} "
                    f"was {before!r} and is {text!r}"
                )
        return remarks


def provenance_warnings(
    role: RoleName, model: str, provenances: Sequence[Mapping[str, str]]
) -> list[str]:
    """Warnings of every report on a server's results, whether they are new or from the store.

    model: the requested name. A name that only adds a date is another name too: the weights behind
    an alias change.
    provenances: of results.
    """
    requested = without_secrets(model)
    name = f"{role} openai:{requested}"
    served = _other_values(provenances, _SERVED, requested[:_LONGEST_NAME])
    warnings = []
    if served:
        warnings.append(
            f"{name}: the server answered as {_quoted(served)}, and {requested!r} was asked for: "
            "see that it is the model that is meant, and name it as the server does"
        )
    return warnings + ignored_warnings(name, provenances)


def ignored_warnings(name: str, provenances: Sequence[Mapping[str, str]]) -> list[str]:
    """Warnings of results that a server made without a parameter that it was sent.

    name: of the model, for people.
    """
    ignored = _other_values(provenances, _IGNORED, "")
    if not ignored:
        return []
    return [f"{name}: answers were made without what was asked for: {_quoted(ignored)}"]


def _other_values(provenances: Sequence[Mapping[str, str]], field: str, usual: str) -> list[str]:
    """Unusual values of a field, each once, without secrets: others may have written the store."""
    values = (
        provenance[field] for provenance in provenances if provenance.get(field, usual) != usual
    )
    return list(dict.fromkeys(map(without_secrets, values)))


def _quoted(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} others" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(repr, names[:_SHOWN_NAMES])) + more
