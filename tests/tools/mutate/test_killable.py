"""Asking in processes that may hang or die."""

import os
import sys
import threading
import time

import pytest
from mutate.killable import Lines, answers_of


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


def test_lines_that_run_in_threads_are_seen(tmp_path):
    """Tests with several ranks reach a room's lines in threads alone."""
    file = tmp_path / "toy.py"
    file.write_text("def toy():\n    a = 1\n    return a\n")
    names = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    before = sys.gettrace(), threading.gettrace()
    lines = Lines(str(file))
    with lines:
        thread = threading.Thread(target=names["toy"])
        thread.start()
        thread.join()
    assert lines.seen >= {2, 3}
    assert (sys.gettrace(), threading.gettrace()) == before
