"""A process that does what it is asked for, a line of JSON at a time."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any


class OtherProcess:
    """A program that is told what to do on its input, and answers on its
    output: a line of JSON goes in for each request, and one comes out.

    Args:
        command: the program and its arguments.
        environment: variables that it gets besides those of this process.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] = {}
    ) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            env=os.environ | environment,
        )

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer to a request.

        Raises:
            RuntimeError: it has ended, or could not do it. Its own words for
                the reason are the message.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError("the other process has ended") from None
        answer = json.loads(self.process.stdout.readline() or "{}")
        if "error" in answer or not answer:
            reason = answer.get("error", "the other process has ended")
            raise RuntimeError(reason)
        return answer

    def seconds(self, request: Mapping[str, Any]) -> float:
        """The seconds that it says a step of what is asked for took."""
        return float(self.ask(request)["seconds"])

    def end(self) -> None:
        """Close its input, at which it ends, and wait for that."""
        self.process.communicate()
