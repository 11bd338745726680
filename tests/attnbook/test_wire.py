"""What goes between ranks: it arrives, it is counted, and nobody waits for
ever."""

import queue
import threading

import pytest
import torch

import attnbook.wire
from attnbook.teach.check.seeded import randn
from attnbook.wire import PATIENCE, ProcessWire, Wire, on_threads


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_know_their_numbers_and_answer_in_order(ranks):
    found = on_threads(ranks, lambda wire: (wire.rank, wire.size, wire.sent))
    assert found == [(rank, ranks, 0) for rank in range(ranks)]


@pytest.mark.parametrize(
    "dtype, size",
    [(torch.float64, 8), (torch.float32, 4), (torch.bool, 1)],
)
def test_what_is_sent_arrives_and_its_bytes_are_counted(dtype, size):
    x = (randn(2, 3, seed=1) > 0).to(dtype)

    def work(wire):
        if wire.rank == 1:
            wire.send(x, 0)
            return wire.sent
        return wire.receive(torch.empty(2, 3, dtype=dtype), 1)

    found, sent = on_threads(2, work)
    assert torch.equal(found, x) and found.dtype == dtype
    assert sent == 6 * size


def test_tensors_arrive_in_the_order_in_which_they_were_sent():
    def work(wire):
        other = 1 - wire.rank
        for n in range(5):
            wire.send(torch.full((n + 1,), n), other)
        return [
            wire.receive(torch.full((n + 1,), 0), other)[0].item()
            for n in range(5)
        ]

    assert on_threads(2, work) == [[0, 1, 2, 3, 4]] * 2


def test_an_empty_tensor_is_not_sent():
    def work(wire):
        if wire.rank == 1:
            return wire.receive(torch.empty(0, 3), 0)
        wire.send(torch.empty(0, 3), 1)
        return wire.sent

    sent, found = on_threads(2, work)
    assert sent == 0 and found.shape == (0, 3)


def test_the_receiver_has_a_tensor_of_its_own():
    """The sender may go on writing into its own, as the receiver may."""

    def work(wire):
        x = torch.zeros(3)
        if wire.rank == 0:
            wire.send(x, 1)
            x += 1
            wire.send(x, 1)
            return x
        first = wire.receive(x, 0)
        second = wire.receive(x, 0)
        first += 7
        return second

    for found in on_threads(2, work):
        assert found.tolist() == [1, 1, 1]


def test_a_tensor_that_is_not_contiguous_keeps_its_places():
    x = randn(3, 4, seed=1).T

    def work(wire):
        return wire.exchange(x, x, to=1 - wire.rank, source=1 - wire.rank)

    assert all(torch.equal(found, x) for found in on_threads(2, work))


def test_an_exchange_goes_to_one_and_comes_from_another():
    def work(wire):
        x = torch.tensor([wire.rank])
        to, source = (wire.rank + 1) % 3, (wire.rank + 2) % 3
        return wire.exchange(x, x, to=to, source=source).item()

    assert on_threads(3, work) == [2, 0, 1]


def waits_in_vain(run):
    """Rank 0 waits for what rank 1 never sends, and says so when it gives up.

    Args:
        run: what runs the work on two ranks, `on_threads` or `on_post`.
    """

    def work(wire):
        if wire.rank == 0:
            wire.receive(torch.ones(1), 1)

    said = "rank 0 has waited too long for a tensor from rank 1, which has not"
    with pytest.raises(TimeoutError, match=said):
        run(2, work, patience=0.05)


def test_a_rank_that_waits_in_vain_gives_up():
    waits_in_vain(on_threads)
    assert threading.active_count() < 20


def test_the_error_of_a_rank_is_told_at_once_and_to_all():
    """Nobody waits for the patience of a minute, and the first error counts,
    not those of the ranks that wait for it."""
    told = []

    def work(wire):
        if wire.rank == 2:
            raise KeyError("mine")
        try:
            wire.receive(torch.ones(1), 2)
        except ConnectionError as error:
            told.append(str(error))
            raise

    with pytest.raises(KeyError, match="mine"):
        on_threads(3, work)
    said = "rank 2 has failed, so rank {} waits for it in vain; see the error"
    assert sorted(t[:58] for t in told) == [
        said.format(rank)[:58] for rank in (0, 1)
    ]


@pytest.mark.parametrize(
    "like", [torch.ones(3), torch.ones(2, dtype=torch.float64)]
)
def test_another_tensor_than_was_waited_for_is_refused(like):
    def work(wire):
        if wire.rank == 1:
            wire.send(torch.ones(2), 0)
        else:
            wire.receive(like, 1)

    said = "rank 0 got another tensor from rank 1 than it waited for; expected"
    with pytest.raises(ValueError, match=said):
        on_threads(2, work)


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_there_is_not_is_refused(rank):
    with pytest.raises(ValueError, match=f"to is not allowed.*got {rank}"):
        on_threads(2, lambda wire: wire.send(torch.ones(1), rank))
    with pytest.raises(ValueError, match=f"source is not.*got {rank}"):
        on_threads(2, lambda wire: wire.receive(torch.ones(1), rank))


def test_nobody_talks_to_himself():
    with pytest.raises(ValueError, match="rank 0 would talk to itself; exp"):
        on_threads(1, lambda wire: wire.send(torch.ones(1), wire.rank))


def test_wrong_numbers_of_ranks_are_refused():
    with pytest.raises(ValueError, match="ranks is not allowed.*got 0"):
        on_threads(0, lambda wire: None)
    with pytest.raises(ValueError, match="patience is not allowed.*got 0"):
        on_threads(1, lambda wire: None, patience=0)
    with pytest.raises(ValueError, match="rank is not allowed.*got 3"):
        Wire(3, 3)
    with pytest.raises(ValueError, match="rank is not allowed.*got -1"):
        Wire(-1, 3)
    with pytest.raises(ValueError, match="size is not allowed.*got 0"):
        Wire(0, 0)


def test_gradients_do_not_go_over_a_wire_by_themselves():
    def work(wire):
        x = torch.ones(1, requires_grad=True)
        return wire.exchange(x, x, to=1 - wire.rank, source=1 - wire.rank)

    assert not any(found.requires_grad for found in on_threads(2, work))


class Letter:
    """A tensor under way. As in gloo, its numbers are read when they are
    received, and not when they are sent."""

    def __init__(self, x):
        self.x = x
        self.arrived = threading.Event()

    def is_completed(self):
        return self.arrived.is_set()

    def wait(self, patience):
        if not self.arrived.wait(patience.total_seconds()):
            raise RuntimeError("timed out")


class Waiting:
    """A tensor that is waited for."""

    def __init__(self, box, into):
        self.box = box
        self.into = into

    def wait(self, patience):
        try:
            letter = self.box.get(timeout=patience.total_seconds())
        except queue.Empty:
            raise RuntimeError("Timed out waiting for a recv") from None
        if isinstance(letter, Exception):
            raise letter
        self.into.copy_(letter.x)
        letter.arrived.set()


class Post:
    """What `torch.distributed` does for a wire, for ranks that are threads.

    Among all processes the ranks have the numbers from 10 on, if a group is
    asked about, and their own numbers if none is.
    """

    def __init__(self, size):
        self.size = size
        self.here = threading.local()
        pairs = [(a, b) for a in range(size) for b in range(size)]
        self.boxes = {pair: queue.Queue() for pair in pairs}
        self.letters = []

    def get_rank(self, group):
        return self.here.rank

    def get_world_size(self, group):
        return self.size

    def get_global_rank(self, group, rank):
        assert group == "a group"
        return rank + 10

    def _place(self, address, group):
        return address if group is None else address - 10

    def isend(self, x, to, group):
        letter = Letter(x)
        self.letters.append(letter)
        self.boxes[self.here.rank, self._place(to, group)].put(letter)
        return letter

    def irecv(self, x, source, group):
        box = self.boxes[self._place(source, group), self.here.rank]
        return Waiting(box, x)


@pytest.fixture
def on_post(monkeypatch):
    """A function like `on_threads` whose ranks have the wire of a process."""

    def start(ranks, work, group=None, **options):
        post = Post(ranks)
        monkeypatch.setattr("attnbook.wire.dist", post)

        def on_rank(wire):
            post.here.rank = wire.rank
            return work(ProcessWire(group, **options))

        return on_threads(ranks, on_rank), post

    return start


@pytest.mark.parametrize("group", [None, "a group"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_processes_exchange_what_threads_do(on_post, ranks, group):
    """Also a tensor that is not contiguous, and an empty one."""
    x = randn(3, 4, seed=1).T

    def work(wire):
        to = (wire.rank + 1) % ranks
        source = (wire.rank - 1) % ranks
        found = []
        for n in range(4 if ranks > 1 else 0):
            mine = x + 10 * wire.rank + n
            found.append(wire.exchange(mine, x, to=to, source=source))
        if ranks > 1:
            empty = x[:0].float()
            assert wire.exchange(empty, empty, to=to, source=source).shape == (
                0,
                3,
            )
        wire.finish()
        return wire.rank, wire.size, wire.sent, found

    results, post = on_post(ranks, work, group)
    for rank, (own, size, sent, found) in enumerate(results):
        assert (own, size) == (rank, ranks)
        assert sent == (4 * 12 * 8 if ranks > 1 else 0)
        before = (rank - 1) % ranks
        for n, came in enumerate(found):
            assert torch.equal(came, x + 10 * before + n)
            assert came.is_contiguous()
    assert len(post.letters) == (4 * ranks if ranks > 1 else 0)


def test_a_sent_tensor_may_be_written_into_at_once(on_post):
    sent = threading.Event()

    def work(wire):
        x = torch.zeros(3)
        if wire.rank == 0:
            wire.send(x, 1)
            x += 1
            sent.set()
            wire.finish()
            return x
        assert sent.wait(10)
        return wire.receive(x, 0)

    (_, found), _ = on_post(2, work)
    assert found.tolist() == [0, 0, 0]


def test_what_is_under_way_is_kept_until_it_has_left(on_post):
    """And no longer. Rank 0 has received something, and two tensors of its
    own are still under way: `finish` waits for both."""
    received = threading.Event()
    late = []

    def work(wire):
        x = torch.ones(2)
        if wire.rank == 1:
            wire.receive(x, 0)
            wire.send(x, 0)
            assert received.wait(10)
            for n in range(2):
                late.append(n)
                wire.receive(x, 0)
            return None
        for _ in range(3):
            wire.send(x, 1)
        wire.receive(x, 1)
        under_way = len(wire._under_way)  # the first one has left
        received.set()
        wire.finish()
        return under_way, len(late), len(wire._under_way)

    (found, _), post = on_post(2, work)
    assert found == (2, 2, 0)
    assert all(letter.is_completed() for letter in post.letters)


def test_a_process_that_waits_in_vain_gives_up(on_post):
    waits_in_vain(on_post)


def test_a_process_that_has_failed_is_told_of(on_post):
    def work(wire):
        if wire.rank == 0:
            box = attnbook.wire.dist.boxes[1, 0]
            box.put(RuntimeError("Connection closed by peer"))
            wire.receive(torch.ones(1), 1)

    said = (
        "rank 0 got nothing from rank 1, which has failed or sent something "
        "else; got Connection closed by peer"
    )
    with pytest.raises(ConnectionError, match=said):
        on_post(2, work)


def test_the_patience_of_a_process(on_post):
    def work(wire):
        return wire._patience.total_seconds()

    assert on_post(2, work)[0] == [PATIENCE] * 2
    assert on_post(1, work, patience=0.5)[0] == [0.5]
    for patience in (0, -1):
        said = f"patience is not allowed.*got {patience}"
        with pytest.raises(ValueError, match=said):
            on_post(1, work, patience=patience)


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_process_that_there_is_not_is_refused(on_post, rank):
    with pytest.raises(ValueError, match=f"to is not allowed.*got {rank}"):
        on_post(2, lambda wire: wire.send(torch.ones(1), rank))
    with pytest.raises(ValueError, match="rank 0 would talk to itself"):
        on_post(1, lambda wire: wire.receive(torch.ones(1), 0))


def test_an_empty_tensor_keeps_its_type_and_is_not_waited_for():
    def work(wire):
        like = torch.empty(0, 2, dtype=torch.int16)
        found = wire.receive(like, 1 - wire.rank)
        assert found is not like
        return found

    for found in on_threads(2, work, patience=0.05):
        assert found.shape == (0, 2) and found.dtype == torch.int16


def test_what_goes_over_a_wire_adds_up():
    def work(wire):
        x = torch.ones(3)
        for _ in range(2):
            wire.exchange(x, x, to=1 - wire.rank, source=1 - wire.rank)
        wire.exchange(
            x.double(), x.double(), to=1 - wire.rank, source=1 - wire.rank
        )
        return wire.sent

    assert on_threads(2, work) == [2 * 3 * 4 + 3 * 8] * 2
