"""The first-divergence tool: what it keeps, and which tensor it names."""

import copy
import math

import pytest
import torch
from theirs import their_model, tokens_of
from torch import nn

from attnbook.masks import padding_mask
from attnbook.pretrained import load
from attnbook.teach.catalogue.divergence import compare, pairs_of, record

# What is kept.


class Twins(nn.Module):
    """Gives a pair, a dictionary, nothing; runs twice, and never."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.pair = Gives(lambda x: (None, (x + 1, x + 2)))
        self.table = Gives(lambda x: {"a": x * 2, "b": x})
        self.nothing = Gives(lambda x: None)
        self.twice = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)
        self.never = nn.Linear(4, 4)

    def forward(self, x, *, fail=False):
        x = self.first(x)
        self.pair(x)
        self.table(x=x)
        self.nothing(x)
        x = self.twice(self.twice(x))
        if fail:
            raise RuntimeError("on purpose")
        return self.last(x).mul_(3)  # in place


class Gives(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.fixture
def twins():
    torch.manual_seed(0)
    return Twins()


def test_outputs_and_inputs_are_kept(twins):
    x = torch.randn(2, 3)
    y = twins.first(x)
    expected = {
        "first": y,
        "first:output": y,
        "pair": y + 1,
        "table": y * 2,
        "twice": twins.twice(y),
        "twice:input": y,
        "table:input": y,
        ":input": x,
        "": twins(x),
        ":output": twins(x),
    }
    found = record(twins, [*expected], x)
    assert [*found] == [*expected]
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name
        assert not tensor.requires_grad


def test_what_is_kept_does_not_change(twins):
    found = record(twins, ["last:input", "last", ":output"], torch.ones(2, 3))
    assert torch.equal(found["last"], twins.last(found["last:input"]))
    assert torch.equal(found[":output"], found["last"] * 3)


@pytest.mark.parametrize(
    "name", ["twise", "first:weight", "never", "never:input", "nothing"]
)
def test_names_that_give_nothing(twins, name):
    """Neither these nor an error leave a hook."""
    words = {"twise": "a name such as twice .*"}.get(name, "")
    with pytest.raises(ValueError, match=f"{words}'{name}'"):
        record(twins, ["first", name], torch.randn(2, 3))
    with pytest.raises(RuntimeError, match="^on purpose$"):
        record(twins, ["first", "twice:input"], torch.ones(2, 3), fail=True)
    for module in twins.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks


# What is compared.


def rows_of(*pairs, **options):
    ours = {f"o{n}": a for n, (a, _) in enumerate(pairs) if a is not None}
    theirs = {f"t{n}": b for n, (_, b) in enumerate(pairs) if b is not None}
    names = [(f"tensor {n}", f"o{n}", f"t{n}") for n in range(len(pairs))]
    return compare(ours, theirs, names, **options)


ONE = torch.ones(2, 3)


#: Ours, theirs, what the table says; the third is the first that differs.
ROWS = [
    (ONE, ONE + 0.5e-4, "2×3     ≤ 1e-4"),
    (torch.tensor(1.0), torch.tensor(1.0), "scalar  ≤ 1e-4"),
    (ONE, ONE - 0.25, "2×3     2e-1"),
    (ONE, ONE, "2×3     ≤ 1e-4"),
    (ONE, ONE[:1], "2×3     another shape: theirs 1×3"),
    (ONE, None, "2×3     missing in theirs"),
    (None, ONE, "2×3     missing in ours"),
    (None, None, "        missing in ours and theirs"),
    (ONE, ONE * math.nan, "2×3     NaN in theirs"),
    (ONE, ONE + 1e7, "2×3     1e7"),
    (ONE, ONE * math.inf, "2×3     inf"),
]


def test_the_table():
    found = rows_of(*((ours, theirs) for ours, theirs, _ in ROWS))
    _, *lines, last = str(found).splitlines()
    for n, (line, (*_, words)) in enumerate(zip(lines, ROWS, strict=True)):
        arrow = "→" if n == 2 else " "
        assert line == f"{arrow}  tensor {n:<2}  {words}"
    assert last == "The first that differs: tensor 2"
    assert found.first == "tensor 2"
    right = [n for n, row in enumerate(found.rows) if row.agrees]
    assert right == [0, 1, 3]


def test_the_bound():
    quarter = rows_of((ONE, ONE - 0.25), bound=0.25)
    assert quarter.first is None and quarter.rows[0].difference == 0.25
    assert rows_of((ONE, ONE - 0.25), bound=0.2499).first == "tensor 0"
    assert rows_of((ONE, ONE), bound=0).first is None


def test_nothing_is_broadcast_and_types_may_differ():
    """Compared in float64: 1 + 2⁻³⁰ is not 1."""
    assert rows_of((ONE, torch.ones(3))).first
    assert rows_of((ONE, torch.ones(1, 2, 3))).first
    more = ONE.double() + 2**-30
    assert rows_of((ONE, more), bound=1e-9).first is None
    assert rows_of((ONE, more), bound=1e-10).first
    assert rows_of((ONE.half(), ONE.bfloat16())).first is None
    assert rows_of((ONE / 0, ONE / 0)).first is None
    assert rows_of((ONE + 0j, ONE + 0j)).first is None
    assert rows_of((ONE + 0j, ONE + 1j)).first


@pytest.mark.parametrize(
    "options, words",
    [
        ({"bound": -1}, "bound; .*got -1"),
        ({"bound": math.nan}, "bound; .*got nan"),
        ({"real": torch.ones(2, 4)}, r"tensor 0; .*\(2, 3\).* got \(2, 4\)"),
        ({"real": torch.zeros(2, 3)}, "tensor 0; .* with 0"),
    ],
)
def test_bad_input_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        rows_of((ONE, ONE), **options)
    with pytest.raises(ValueError, match="at least one pair"):
        rows_of()


N_LAYERS = 2


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def models(request, tmp_path_factory):
    theirs = their_model(request.param, tie_word_embeddings=False)
    folder = tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    return request.param, load(folder), theirs


def diverge(family, ours, theirs, tokens, real=None):
    pairs = pairs_of(family, N_LAYERS)
    options = {}
    if real is not None:
        positions = (real.long().cumsum(-1) - 1).clamp(min=0)
        options = {"attention_mask": real.long(), "position_ids": positions}
    return compare(
        record(ours, [a for _, a, _ in pairs], tokens, real=real),
        record(theirs, [b for _, _, b in pairs], tokens, **options),
        pairs,
        real=real,
    )


def test_two_that_are_one(models):
    found = diverge(*models, tokens_of(2, 9))
    assert found.first is None
    steps = "first norm", "attention", "second norm", "feed-forward", "output"
    assert [row.label for row in found.rows] == [
        "embedding",
        *(f"block {n}: {step}" for n in range(N_LAYERS) for step in steps),
        "final norm",
        "logits",
    ]
    assert {row.shape for row in found.rows} == {(2, 9, 24), (2, 9, 37)}
    for side in ("left", "right"):
        real = padding_mask([9, 4], side=side)
        assert diverge(*models, tokens_of(2, 9), real).first is None


def not_causal(model, block):
    forward = block.attention.forward
    block.attention.forward = lambda x, causal, **options: forward(
        x, causal=False, **options
    )


def forget_stream(model, block):
    block.register_forward_hook(lambda _, args, output: output - args[0])


def spoilt(name, function):
    """A weight is changed: of a block if its name begins with a dot."""

    def plant(model, block):
        owner = block if name[0] == "." else model
        weight = owner.get_parameter(f"{name.strip('.')}.weight")
        with torch.no_grad():
            weight.copy_(function(weight.clone()))

    return plant


#: The first tensor that shows what is wrong; {} is the block.
BUGS = [
    (spoilt("token_embedding", lambda w: w.roll(1, 0)), "embedding"),
    (spoilt(".attention_norm", torch.neg), "block {}: first norm"),
    (spoilt(".attention.out", torch.t), "block {}: attention"),
    (not_causal, "block {}: attention"),
    (spoilt(".feed_forward_norm", torch.neg), "block {}: second norm"),
    (spoilt(".feed_forward.up", lambda w: w / 0), "block {}: feed-forward"),
    (forget_stream, "block {}: output"),
    (spoilt("norm", torch.neg), "final norm"),
    (spoilt("head", lambda w: w.roll(1, 0)), "logits"),
]


@pytest.mark.parametrize("place", [0, N_LAYERS - 1])
@pytest.mark.parametrize("plant, first", BUGS)
def test_a_bug_is_found(models, plant, first, place):
    family, ours, theirs = copy.deepcopy(models)
    plant(ours, ours.blocks[place])
    found = diverge(family, ours, theirs, tokens_of(2, 9))
    assert found.first == first.format(place), found
    arrows = [x for x in str(found).splitlines() if x.startswith("→")]
    assert len(arrows) == 1 and first.format(place) in arrows[0]
