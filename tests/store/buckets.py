"""Places to share results: a server that speaks S3, with its users; one that answers late."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem

BUCKET = "chains"

SECRET = "an-owner's-secret-that-nobody-may-see"

_ROOT = ("AKIAROOT", SECRET)

_ALLOW = {
    "reader": ["s3:GetObject", "s3:ListBucket"],
    "blind": ["s3:GetObject"],  # a missing object looks forbidden to who may not list
    "nobody": ["sqs:*"],
}


@dataclass(frozen=True)
class Server:
    """Where it answers, and (key, secret) of users by name."""

    url: str
    users: dict[str, tuple[str, str]]

    def environment(self, user: str = "root") -> dict[str, str]:
        """What libraries and processes read."""
        key, secret = _ROOT if user == "root" else self.users[user]
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Meanwhile, permissions are checked."""
        self.tell("reset-auth", "0")
        try:
            yield
        finally:
            self.tell("reset-auth", "inf")

    def tell(self, what: str, value: str) -> None:
        """Something about the server itself."""
        asked = urllib.request.Request(
            f"{self.url}/moto-api/{what}", value.encode(), {"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(asked).close()

    def client(self, service: str) -> Any:
        """Amazon's client, of the one who may do everything."""
        import boto3

        return boto3.client(
            service, endpoint_url=self.url, region_name="us-east-1",
            aws_access_key_id=_ROOT[0], aws_secret_access_key=_ROOT[1],
        )  # fmt: skip


@contextmanager
def serving() -> Iterator[Server]:
    """Start it, with an empty bucket and the users."""
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    running = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    try:
        host, port = running.get_host_and_port()
        server = Server(f"http://{host}:{port}", {})
        server.tell("reset", "")  # what it holds is the process's, and outlives the server
        server.client("s3").create_bucket(Bucket=BUCKET)
        iam = server.client("iam")
        for name, actions in _ALLOW.items():
            iam.create_user(UserName=name)
            allowed = [{"Effect": "Allow", "Action": actions, "Resource": "*"}]
            policy = json.dumps({"Version": "2012-10-17", "Statement": allowed})
            iam.put_user_policy(UserName=name, PolicyName="it", PolicyDocument=policy)
            key = iam.create_access_key(UserName=name)["AccessKey"]
            server.users[name] = (key["AccessKeyId"], key["SecretAccessKey"])
        yield server
    finally:
        running.stop()


class SlowFileSystem(AsyncFileSystem):  # type: ignore[misc] # fsspec has no types
    """Objects in memory, all behind `delay` seconds; one for the whole process, see `reset`.

    failures: requests that still fail, before others are answered.
    blocked: nothing is written after a first object, the marker, until this is False again.
    """

    protocol = "slow"
    delay: ClassVar[float] = 0.0
    broken: ClassVar[bool] = False
    failures: ClassVar[int] = 0
    blocked: ClassVar[bool] = False
    held: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []
    written: ClassVar[list[str]] = []

    @classmethod
    def reset(cls) -> None:
        """Empty, fast and sound again."""
        cls.delay, cls.broken, cls.failures, cls.blocked = 0.0, False, 0, False
        for content in (cls.held, cls.asked, cls.written):
            content.clear()

    async def _cat_file(self, path: str, **_: Any) -> bytes:
        self.asked.append(path)
        await self._answer()
        if path not in self.held:
            raise FileNotFoundError(path)
        return self.held[path]

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        await self._answer()
        while self.blocked and self.held:
            await asyncio.sleep(0.01)
        if mode == "create" and path in self.held:
            raise FileExistsError(path)
        self.held[path] = value
        self.written.append(path)

    async def _answer(self) -> None:
        await asyncio.sleep(self.delay)
        if self.failures:
            type(self).failures -= 1
            raise ConnectionError("a hiccup")
        if self.broken:
            raise ConnectionError("the cable is out")


fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
