"""What goes between ranks: it arrives, it is counted, and nobody waits for
ever."""

import threading

import pytest
import torch

from attnbook.teach.check.seeded import randn
from attnbook.wire import Wire, on_threads


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


def test_a_rank_that_waits_in_vain_gives_up():
    def work(wire):
        if wire.rank == 0:
            wire.receive(torch.ones(1), 1)

    said = "rank 0 has waited too long for a tensor from rank 1, which has not"
    with pytest.raises(TimeoutError, match=said):
        on_threads(2, work, patience=0.05)
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
