"""The layers against torch, alone and in batches."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnbook.cache import KVCache, LayerCache
from attnbook.layers import (
    MultiHeadAttention,
    SelfAttention,
    TransformerBlock,
    attention_weights,
)
from attnbook.masks import causal_mask, padding_mask
from attnbook.teach.check.proof import agrees
from attnbook.teach.check.seeded import randn

B, T, D_IN, D_K, D_V = 2, 7, 4, 3, 5


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return SelfAttention(D_IN, D_K, D_V, bias=False).double()


def _theirs(layer, x, mask=None):
    """Plain products with the layer's weights, then torch's attention."""
    q, k, v = (
        x @ linear.weight.T for linear in (layer.query, layer.key, layer.value)
    )
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize("mask", [None, causal_mask(T)])
def test_the_layer_agrees_with_torch(layer, mask):
    agrees(
        lambda x: layer(x, mask),
        lambda x: _theirs(layer, x, mask),
        name="SDPA",
        gradients=True,
        cases=[(randn(T, D_IN, seed=1),), (randn(B, T, D_IN, seed=2),)],
    )


def test_every_stage_is_there_and_fits(layer):
    x = randn(B, T, D_IN, seed=4)
    mask = causal_mask(T)
    stages = layer.stages(x, mask)
    agrees(stages.q, layer.query(x), name="the query matrix")
    agrees(stages.k, layer.key(x), name="the key matrix")
    agrees(stages.context, layer(x, mask), name="forward", within=0)
    agrees(stages.weights @ stages.v, stages.context, name="the average")
    agrees(stages.weights > 0, mask.expand(B, -1, -1), name="the mask")
    assert stages.scores.isfinite().all()  # masking made a new tensor


def _theirs_of(ours, **options):
    """An nn.MultiheadAttention with the same weights."""
    theirs = nn.MultiheadAttention(
        ours.out.out_features, ours.n_heads, batch_first=True, **options
    ).double()
    both = ours.query, ours.key_value
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([x.weight for x in both]))
        theirs.in_proj_bias.copy_(torch.cat([x.bias for x in both]))
        theirs.out_proj.load_state_dict(ours.out.state_dict())
    return theirs


def _many_heads(*args, **kwargs):
    torch.manual_seed(1)
    layer = MultiHeadAttention(*args, **kwargs).double()
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return layer.eval()


@pytest.mark.parametrize("path", ["forward", "with_weights"])
def test_many_heads_agree_with_torch(path):
    ours = _many_heads(12, 3)
    theirs = _theirs_of(ours).eval()
    real = padding_mask([5, 3])  # (B, S)

    def by_us(x, memory):
        found = getattr(ours, path)(x, memory, mask=real[:, None, None, :])
        return found if path == "forward" else tuple(found)

    def by_torch(x, memory):
        out, weights = theirs(
            x,
            memory,
            memory,
            key_padding_mask=~real,
            average_attn_weights=False,
        )
        return out if path == "forward" else (out, weights)

    case = (randn(B, 4, 12, seed=6), randn(B, 5, 12, seed=7))
    agrees(by_us, by_torch, name="torch", cases=[case], gradients=True)


def test_texts_that_are_asked_alike_have_masks_of_their_own():
    ours = MultiHeadAttention(12, 3).double()
    x = randn(4, 12, seed=1)
    memory = randn(2, 5, 12, seed=2)
    mask = padding_mask([5, 3])[:, None, None, :]  # (B, 1, 1, S)
    expected = ours(x.expand(2, -1, -1), memory, mask=mask)
    agrees(ours(x, memory, mask=mask), expected, name="each alone")


LEFT = padding_mask([7, 4], side="left")[:, None, None, :]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, LEFT, randn(3, T, T, seed=9)])
def test_the_fast_path_is_the_plain_one(mask, causal):
    layer = _many_heads(12, 3, n_kv_heads=1)
    options = {"mask": mask, "causal": causal}
    agrees(
        lambda x: layer(x, **options),
        lambda x: layer.with_weights(x, **options).out,
        name="the plain path",
        cases=[(randn(B, T, 12, seed=10),)],
        gradients=True,
    )


def test_a_block_hands_its_dropout_on():
    block = TransformerBlock(4, 2, dropout=0.25)
    assert block.feed_forward.dropout == block.attention.dropout == 0.25
    assert block.norm_first  # unless told


def test_a_layer_turns_by_angles_of_base_10000():
    layer = MultiHeadAttention(8, 2, rotary=True)
    angles = torch.tensor([[3, 0.03]]).double()
    agrees(layer.rotation(torch.tensor([3]))[0], angles.cos(), within=1e-6)
    agrees(layer.rotation(torch.tensor([3]))[1], angles.sin(), within=1e-6)
    slow = (2.0, 1.0, 4.0, 8.0)  # waves above 8 tokens at half the speed
    layer = MultiHeadAttention(8, 2, rotary=True, rotary_scaling=slow)
    halved = layer.rotation(torch.tensor([3]))[1][:, 1]  # a sine
    agrees(halved, torch.tensor([0.015]).double().sin(), within=1e-6)


@pytest.mark.parametrize("path", ["forward", "with_weights"])
def test_dropout_reaches_weights_and_result_in_training_only(path):
    """With W_O the identity, a dropped component of the result is 0, and so
    is the context of a query whose only weight is dropped."""
    layer = MultiHeadAttention(2, 1, dropout=0.5, bias=False).train()
    nn.init.eye_(layer.out.weight)

    def result():
        found = getattr(layer, path)(torch.ones(4000, 1, 2))
        if path == "with_weights":  # which shows them as they were
            assert (found.weights == 1).all()
        return (found if path == "forward" else found.out)[:, 0]  # (4000, 2)

    torch.manual_seed(0)
    out = result()
    both = (out == 0).all(-1).double().mean()
    # The weight falls out (1/2), or else both components do (1/2 · 1/4).
    assert abs(both - 0.625) < 0.03
    kept = out[(out != 0).all(-1)]
    value = layer.key_value(torch.ones(2))[2:]
    agrees(kept, 4 * value.expand_as(kept), name="scaled twice", within=1e-5)
    layer.eval()
    agrees(result(), value.expand_as(out), name="nothing dropped")


class Decoder(nn.Module):
    """Two attentions, the second one to a memory."""

    def __init__(self):
        super().__init__()
        self.own, self.cross = (_many_heads(12, 3) for _ in range(2))

    def forward(self, x, memory):
        return self.cross(self.own(x, causal=True), memory)


def test_attention_weights_of_a_model():
    model = Decoder()
    x, memory = randn(B, 4, 12, seed=15), randn(B, 6, 12, seed=16)
    first, second = attention_weights(model, x, memory=memory)
    assert first.shape == (B, 3, 4, 4) and second.shape == (B, 3, 4, 6)
    assert not first.triu(1).any() and not first.requires_grad
    x, expected = model.own.with_weights(x, causal=True)
    agrees(first, expected, name="the layer's own")
    expected = model.cross.with_weights(x, memory).weights
    agrees(second, expected, name="the layer's own")
    assert not model.own._forward_pre_hooks


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_block_agrees_with_torch(norm_first):
    ours = TransformerBlock(
        12, 3, d_ff=20, norm_first=norm_first, activation="relu"
    ).double()
    theirs = nn.TransformerEncoderLayer(
        12, 3, 20, dropout=0.0, norm_first=norm_first, batch_first=True
    ).double()
    for seed, norm in enumerate([ours.attention_norm, ours.feed_forward_norm]):
        norm.weight.data = randn(12, seed=30 + seed)
        norm.bias.data = randn(12, seed=40 + seed)
        getattr(theirs, f"norm{seed + 1}").load_state_dict(norm.state_dict())
    theirs.self_attn = _theirs_of(ours.attention)
    theirs.linear1.load_state_dict(ours.feed_forward.up.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.down.state_dict())
    later = ~causal_mask(T)
    agrees(
        lambda x: ours(x, causal=True),
        lambda x: theirs(x, src_mask=later),
        name="torch",
        cases=[(randn(B, T, 12, seed=28),)],
        gradients=True,
        within=1e-11,
    )


def heads(*args, **options):
    """A call of a layer of many heads with tokens of these shapes."""
    mask = options.pop("mask", None)
    tokens = [torch.ones(shape) for shape in args]
    return MultiHeadAttention(12, 6, **options)(*tokens, mask=mask)


grouped = partial(heads, n_kv_heads=2)
X = torch.ones(3, 4)
MASK = torch.ones(2, 2, 4, 4) > 0


@pytest.mark.parametrize(
    "call, error, named",
    [
        (lambda: SelfAttention(0, 3), ValueError, "d_in"),
        (lambda: SelfAttention(4, 3, 0), ValueError, "d_v"),
        (lambda: SelfAttention(5, 3)(X), ValueError, "d_in of x"),
        (lambda: SelfAttention(4, 3)(X[0]), ValueError, "axis T"),
        (lambda: SelfAttention(4, 3)(X * torch.nan), ValueError, "q contains"),
        (lambda: SelfAttention(4, 3)(X, X[:, :2] > 0), ValueError, "mask"),
        (lambda: SelfAttention(4, 3)(X, X[:, :3]), TypeError, "mask"),
        (lambda: SelfAttention(4, 3)(X.double()), TypeError, "x is"),
        (lambda: MultiHeadAttention(12, 5), ValueError, "n_heads"),
        (lambda: MultiHeadAttention(12, 6, dropout=1.5), ValueError, "drop"),
        (lambda: MultiHeadAttention(12, 6, n_kv_heads=4), ValueError, "n_kv"),
        (lambda: heads((4, 12), mask=causal_mask(3)), ValueError, "mask"),
        (lambda: heads((2, 4, 12), mask=MASK[:, 0]), ValueError, "mask"),
        (lambda: grouped((2, 4, 12), mask=MASK), ValueError, "mask"),
        (lambda: heads((4, 12), (4, 11)), ValueError, "d_model"),
        (lambda: heads((4, 12), (0, 12)), ValueError, "S of memory"),
        (lambda: heads((2, 4, 12), (3, 5, 12)), ValueError, "leading axes"),
        (lambda: heads((4, 12), (4, 12), rotary=True), ValueError, "memory"),
        (lambda: TransformerBlock(12, 3, norm="batch"), ValueError, "norm"),
        (lambda: TransformerBlock(4, 2, activation="x"), ValueError, "activ"),
    ],
)
def test_bad_input_is_named(call, error, named):
    with pytest.raises(error, match=f"{named}.*; expected .*; got "):
        call()


@torch.inference_mode()
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("rotary", [False, True])
def test_a_layer_with_a_cache_in_pieces_as_all_at_once(rotary, told):
    layer = MultiHeadAttention(12, 3, rotary=rotary).double()
    x = randn(2, 7, 12, seed=1)
    found = []
    sizes = dict(n_layers=1, n_heads=3, d_k=4, dtype=torch.float64)
    cache = KVCache(2, 8, **sizes)
    for part in x.split((4, 1, 2), 1):
        places = cache.place(2, part.shape[1])
        part_of = LayerCache(cache, 0, places)
        at = places.positions if told else None
        found.append(layer(part, causal=True, positions=at, cache=part_of))
        cache.commit(places)
    whole = layer(x, causal=True)
    agrees(torch.cat(found, 1), whole, name="whole", within=1e-12)


@pytest.mark.parametrize(
    "kind", [SelfAttention, MultiHeadAttention, TransformerBlock]
)
def test_every_layer_has_biases_unless_told(kind):
    linear = [m for m in kind(4, 2).modules() if hasattr(m, "bias")]
    assert linear and all(m.bias is not None for m in linear)
    without = kind(4, 2, bias=False).modules()
    assert all(getattr(m, "bias", None) is None for m in without)


# ---- a mask without an axis for the heads


@pytest.mark.parametrize(
    "texts, n_heads, tokens",
    [(4, 4, 5), (5, 4, 5), (3, 4, 5), (4, 4, 4), (3, 2, 5)],
)
@pytest.mark.parametrize("path", ["forward", "with_weights"])
def test_a_mask_of_texts_without_an_axis_for_heads_is_refused(
    texts, n_heads, tokens, path
):
    """Whatever the sizes: also where texts are as many as heads, or as
    tokens, so that the mask would fit and hide other keys."""
    real = torch.ones(texts, tokens, dtype=torch.bool)
    real[0, 3:] = False
    x = randn(texts, tokens, 8 * n_heads, seed=1)
    layer = MultiHeadAttention(8 * n_heads, n_heads).double()
    call = getattr(layer, path)
    call(x, mask=real[:, None, None, :])
    added = torch.zeros(real.shape).double().masked_fill(~real, -torch.inf)
    for mask in (real, real[:, None, :], added, added[:, None, :]):
        with pytest.raises(ValueError, match="mask.*; expected .*; got .*"):
            call(x, mask=mask)


def test_masks_that_all_texts_share_fit_beside_a_batch():
    """Of queries and keys, and of heads too, unless they may mean texts."""
    layer = MultiHeadAttention(8, 2).double()
    for texts in (1, 3):
        x = randn(texts, 5, 8, seed=1)
        wanted = layer(x, causal=True)
        for mask in (causal_mask(5), causal_mask(5).expand(2, 5, 5)):
            agrees(layer(x, mask=mask), wanted, name="shared", within=1e-12)
    bias = randn(2, 5, 5, seed=2)  # one for each head, and there are two texts
    x = randn(2, 5, 8, seed=1)
    wanted = layer(x, mask=bias[None])
    agrees(layer(x, mask=bias), wanted, name="a bias", within=1e-12)


def test_shared_keys_are_dealt_out_in_runs_on_both_paths():
    """Heads 0 and 1 read the first keys: not 0 and 2, as a mutant had it."""
    layer = MultiHeadAttention(16, 4, n_kv_heads=2).double()
    x = randn(2, 5, 16, seed=3)
    plain = layer.with_weights(x, causal=True).out
    agrees(plain, layer(x, causal=True), name="forward", within=1e-12)


def test_the_plain_path_looks_at_its_mask_too():
    layer = MultiHeadAttention(8, 2).double()
    x = randn(1, 3, 8, seed=1)
    for mask in (torch.ones(4, 4).bool(), torch.full((3, 3), torch.nan)):
        with pytest.raises(ValueError, match="mask"):
            layer.with_weights(x, mask=mask)


def test_a_hidden_key_is_hidden_however_high_its_score():
    """Minus a billion in place of −∞ is not: a score can be higher."""
    layer = SelfAttention(1, 1, bias=False).double()
    with torch.no_grad():
        for part in (layer.query, layer.key, layer.value):
            part.weight.fill_(1.0)
    x = torch.tensor([[1e6], [1e7]]).double()
    stages = layer.stages(x, causal_mask(2))
    assert stages.masked[0, 1] == -torch.inf
    assert stages.weights[0].tolist() == [1, 0]


def test_each_text_of_a_batch_is_turned_by_its_own_positions():
    """The same for every head, and another for every text."""
    layer = MultiHeadAttention(8, 2, rotary=True).double()
    x = randn(2, 3, 8, seed=4)
    positions = torch.tensor([[0, 1, 2], [5, 9, 11]])
    found = layer(x, positions=positions)
    for row in range(2):
        alone = layer(x[row : row + 1], positions=positions[row])
        agrees(found[row : row + 1], alone, name="alone", within=1e-12)
