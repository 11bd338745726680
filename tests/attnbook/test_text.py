"""Texts: the book's own through its tokenizer, and Tiny Shakespeare from
where it can be had, with what stands in for it elsewhere."""

import contextlib
import hashlib
import io
import itertools
import socketserver
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from attnbook import text
from attnbook.positions import token_positions
from attnbook.teach.catalogue.tokenizer import train_tokenizer
from attnbook.teach.check.proof import agrees
from attnbook.text import book_text, tiny_shakespeare

TEXTS = ["The boat left the river bank", "One step", ""]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(book_text())


def test_text_survives_the_round_trip(tokenizer):
    for line in ["The boat left", "naïve ☃ 2+2", *book_text()]:
        ids = tokenizer(line).input_ids
        assert tokenizer.decode(ids).strip() == line
        assert max(ids) < len(tokenizer)


def test_a_batch_is_padded_on_the_left(tokenizer):
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    real = batch.attention_mask
    assert batch.input_ids.dtype == torch.int64
    agrees(batch.input_ids == tokenizer.pad_token_id, real == 0, name="pads")
    assert real[1, -1] == 1 and real[1, 0] == 0
    agrees(token_positions(real)[1].max(), real[1].sum() - 1, name="count")


def test_training_is_the_same_each_time(tokenizer):
    assert train_tokenizer(book_text()).get_vocab() == tokenizer.get_vocab()
    assert len(tokenizer(TEXTS[0]).input_ids) == 6  # as the chapters show it


# Tiny Shakespeare, from a host on this machine that has a short one.

TEXT = b"First Citizen:\nBefore we proceed any further, hear me speak.\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


@pytest.fixture
def host(monkeypatch, tmp_path):
    """`answers`, one for each connection: bytes, or a generator of them."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(4096)
            answer = server.answers.pop(0)
            parts = [answer] if isinstance(answer, bytes) else answer
            with contextlib.suppress(OSError):
                for part in parts:
                    self.request.sendall(part)
                    server.sent += len(part)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    server.answers = [WHOLE % (len(TEXT), TEXT)]
    server.sent = 0
    server.kept = tmp_path / "attnbook" / "tiny_shakespeare.txt"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv(text.OFFLINE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = f"http://127.0.0.1:{server.server_address[1]}/it"
    monkeypatch.setattr(text, "SHAKESPEARE", url)
    monkeypatch.setattr(text, "SHAKESPEARE_BYTES", len(TEXT))
    digest = hashlib.sha256(TEXT).hexdigest()
    monkeypatch.setattr(text, "SHAKESPEARE_SHA256", digest)
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("spoilt", [False, True])
def test_tiny_shakespeare_is_fetched_once_and_kept(host, monkeypatch, spoilt):
    if spoilt:  # a copy that is fetched again
        host.kept.parent.mkdir()
        host.kept.write_bytes(TEXT[:-1])
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")
        home = host.kept.parents[1]
        for name in "HOME", "USERPROFILE":  # of POSIX, of Windows
            monkeypatch.setenv(name, str(home))
        host.kept = home / ".cache" / "attnbook" / host.kept.name
    for _ in range(2):  # there is one answer alone
        assert tiny_shakespeare() == TEXT.decode()
    assert [p.name for p in host.kept.parent.iterdir()] == [host.kept.name]
    assert host.kept.read_bytes() == TEXT
    monkeypatch.setenv(text.OFFLINE, "1")  # where all have the same text
    assert tiny_shakespeare() == "".join(f"{line}\n" for line in book_text())


@pytest.mark.parametrize("seconds, fast", [(30.0, True), (30.5, False)])
def test_it_is_waited_for_half_a_minute(host, monkeypatch, seconds, fast):
    times = itertools.chain([0.0], itertools.repeat(seconds))
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(text, "time", clock)
    assert (tiny_shakespeare() == TEXT.decode()) is fast


def test_no_more_is_read_than_there_should_be(host, monkeypatch):
    def opened(url, *, timeout):
        return contextlib.nullcontext(source)

    source = io.BytesIO(3 * TEXT)
    monkeypatch.setattr(text.urllib.request, "urlopen", opened)
    assert tiny_shakespeare().splitlines() == book_text()
    assert source.tell() == len(TEXT) + 1


def streamed(part, pause):
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    for _ in range(10_000):
        time.sleep(pause)
        yield part


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE % (len(TEXT) + 1, TEXT + b"\n"),
        WHOLE % (len(TEXT) + 9, TEXT[:9]),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"no HTTP at all",
        b"",
        streamed(b"x" * 2**16, 0),  # without an end
        streamed(b"x", 0.1),
    ],
)
def test_a_host_that_misbehaves_is_no_error(host, answer):
    host.answers = [answer]
    assert tiny_shakespeare(seconds=0.5).splitlines() == book_text()
    assert not host.kept.exists() and not host.answers
    # No more is read than there should be, and no longer.
    assert host.sent < 2**26


def test_one_is_told_which_text_it_is(host, tmp_path, capsys):
    (tmp_path / "attnbook").write_text("no folder, so nothing can be kept")
    assert tiny_shakespeare() == TEXT.decode()
    tiny_shakespeare(seconds=0.5)  # the host has gone
    lines = capsys.readouterr().out.splitlines()
    assert "Shakespeare" in lines[0] and "own stories" in lines[1]
