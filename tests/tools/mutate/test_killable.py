"""Asking in processes that may hang or die."""

import os
import time

import pytest
from mutate.killable import answers_of


@pytest.mark.parametrize("batch", [1, 4])
def test_what_hangs_or_dies_is_ended_and_the_rest_is_asked(batch):
    def ask(n):
        if n == 1:
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    pass
        if n == 3:
            os._exit(1)
        return n * n

    answers = dict(answers_of(ask, [0, 1, 2, 3, 4], seconds=0.2, batch=batch))
    assert answers == {0: 0, 1: "ended", 2: 4, 3: "ended", 4: 16}
