"""A server that speaks S3, on loopback, and users who may do more or less with it."""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

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
