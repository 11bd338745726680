"""Text: vocabularies, windows, the tokenizer and Tiny Shakespeare, each
from where it can be had, and what stands in for it elsewhere."""

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
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnbook import text
from attnbook.positions import token_positions
from attnbook.teach.catalogue.tokenizer import train_tokenizer
from attnbook.teach.check.proof import agrees
from attnbook.text import Vocabulary, book_text, tiny_shakespeare, windows

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


@given(st.text(min_size=1))
@example(" a\n")
@settings(deadline=None)
def test_characters_survive_the_round_trip(line):
    vocabulary = Vocabulary.of_characters(line)
    numbers = vocabulary.encode(line)
    assert vocabulary.decode(numbers) == line
    assert set(numbers) == set(range(len(vocabulary)))
    assert list(Vocabulary(list(vocabulary))) == list(vocabulary)


def test_words_survive_the_round_trip():
    words = ["<s>", "the", "boat", "a"]
    vocabulary = Vocabulary(words)
    words.clear()  # it has its own
    assert Vocabulary(["of", "a"]).decode([1, 0]) == "a of"
    assert vocabulary.encode("the  boat\nthe a") == [1, 2, 1, 3]
    assert vocabulary.decode(torch.tensor([0, 2])) == "<s> boat"
    assert "boat" in vocabulary and "bank" not in vocabulary
    assert 0 not in vocabulary


AB, OLD = Vocabulary(["a", "b"]), Vocabulary(["the", "boat"])


@pytest.mark.parametrize(
    "fn, arguments, names",
    [
        (Vocabulary, ([],), "number of tokens"),
        (Vocabulary, (["a", ""],), "''"),
        (Vocabulary, (["a", "b", "a"],), "'a'"),
        (Vocabulary, (["the boat"],), "'the boat'"),
        (OLD.encode, (" \n",), "length of the text"),
        (AB.encode, ("abxa",), "'x'"),
        (AB.decode, ([0, 2],), "got 2"),
        (AB.decode, ([-1],), "got -1"),
        (windows, ([1, 2, 3], 3), "length of the text"),
        (windows, ([1, 2, 3], 0), "context"),
    ],
)
def test_bad_vocabularies_and_windows_are_named(fn, arguments, names):
    with pytest.raises(ValueError, match=names):
        fn(*arguments)


def test_windows_are_pieces_of_the_text_one_place_apart():
    """Every piece is drawn, the first and the last too, equally often."""
    numbers = torch.arange(10, 17).int()  # so that a token tells its place
    draw = windows(numbers, 4)
    tokens, targets = draw(3000, torch.Generator().manual_seed(0))
    assert tokens.dtype == targets.dtype == torch.int64
    first = tokens[:, :1]
    agrees(tokens, first + torch.arange(4), name="side by side")
    agrees(targets, tokens + 1, name="the next")
    starts = first.flatten().bincount()[10:]
    assert len(starts) == 3 and starts.min() > 900
    again, _ = draw(3000, torch.Generator().manual_seed(0))
    agrees(again, tokens, name="the same seed")
    one, its_next = windows([5, 6], 1)(2, torch.Generator())
    assert one.tolist() == [[5]] * 2 and its_next.tolist() == [[6]] * 2


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
    server.answers, server.sent = [WHOLE % (len(TEXT), TEXT)], 0
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
