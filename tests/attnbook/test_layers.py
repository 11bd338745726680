"""The layers against torch, alone and in batches."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, LlamaConfig
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.models.llama.modeling_llama import LlamaAttention

from attnbook import norms
from attnbook.attention import merge_heads, split_heads
from attnbook.feed_forward import (
    ACTIVATIONS,
    FEED_FORWARDS,
    FeedForward,
    SwiGLU,
)
from attnbook.layers import (
    MultiHeadAttention,
    SelfAttention,
    Stages,
    TransformerBlock,
    attention_weights,
)
from attnbook.masks import causal_mask, combine, padding_mask
from attnbook.norms import LayerNorm, RMSNorm, make_norm
from attnbook.positions import rotary_angles, rotate
from attnbook.teach.proof import agrees
from attnbook.teach.seeded import randn

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


def test_the_gradients_of_the_weights_agree(layer):
    x = randn(B, T, D_IN, seed=3)
    weights = list(layer.parameters())
    ours = torch.autograd.grad(layer(x).pow(2).sum(), weights)
    theirs = torch.autograd.grad(_theirs(layer, x).pow(2).sum(), weights)
    agrees(ours, theirs, name="SDPA")


def test_every_stage_is_there_and_fits(layer):
    x, mask = randn(B, T, D_IN, seed=4), causal_mask(T)
    stages = layer.stages(x, mask)
    assert isinstance(stages, Stages)
    assert {n: tuple(s.shape) for n, s in stages._asdict().items()} == {
        "q": (B, T, D_K),
        "k": (B, T, D_K),
        "v": (B, T, D_V),
        "scores": (B, T, T),
        "masked": (B, T, T),
        "weights": (B, T, T),
        "context": (B, T, D_V),
    }
    agrees(stages.context, layer(x, mask), name="forward", within=0)
    agrees(stages.weights @ stages.v, stages.context, name="the average")
    agrees(stages.weights > 0, mask.expand(B, -1, -1), name="the mask")
    assert stages.scores.isfinite().all()  # masking made a new tensor


@pytest.mark.parametrize("side", ["left", "right"])
def test_batched_equals_alone(layer, side):
    """Sequences of unequal length, padded with large numbers that must not
    leak, give what each gives by itself."""
    lengths = [3, 7, 1]
    real = padding_mask(lengths, side=side)  # (B, T)
    x = randn(3, T, D_IN, seed=5)
    padded = torch.where(real[..., None], x, 1e3)
    mask = combine(causal_mask(T), real[:, None, :])
    batched = layer(padded, mask)
    for row, n in enumerate(lengths):
        alone = layer(x[row][real[row]], causal_mask(n))
        agrees(batched[row][real[row]], alone, name="alone")


def _theirs_of(ours, **options):
    """An nn.MultiheadAttention with the same weights."""
    d_model, d_memory = ours.out.out_features, ours.key_value.in_features
    theirs = nn.MultiheadAttention(
        d_model,
        ours.n_heads,
        kdim=d_memory,
        vdim=d_memory,
        batch_first=True,
        **options,
    ).double()
    k, v = ours.key_value.weight.detach().chunk(2)
    k_bias, v_bias = ours.key_value.bias.detach().chunk(2)
    with torch.no_grad():
        if theirs.in_proj_weight is None:
            theirs.q_proj_weight.copy_(ours.query.weight)
            theirs.k_proj_weight.copy_(k)
            theirs.v_proj_weight.copy_(v)
        else:
            theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, k, v]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, k_bias, v_bias]))
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
@pytest.mark.parametrize("d_memory", [12, 7])
def test_many_heads_agree_with_torch(path, d_memory):
    ours = _many_heads(12, 3, d_memory=d_memory)
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

    case = (randn(B, 4, 12, seed=6), randn(B, 5, d_memory, seed=7))
    agrees(by_us, by_torch, name="torch", cases=[case], gradients=True)


def test_the_gradients_of_many_heads_agree_with_torch():
    ours = _many_heads(12, 3)
    theirs = _theirs_of(ours)
    x = randn(B, T, 12, seed=8)
    ours(x, causal=True).pow(2).sum().backward()
    theirs(x, x, x, attn_mask=~causal_mask(T))[0].pow(2).sum().backward()
    agrees(
        torch.cat([ours.query.weight.grad, ours.key_value.weight.grad]),
        theirs.in_proj_weight.grad,
        name="torch",
    )
    agrees(ours.out.weight.grad, theirs.out_proj.weight.grad, name="torch")


@pytest.mark.parametrize("n_kv_heads", [3, 1])
@pytest.mark.parametrize("d_in", [12, 7])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"mask": causal_mask(T)},
        {"mask": padding_mask([7, 4])[:, None, None, :], "causal": True},
        {
            "mask": padding_mask([7, 4], side="left")[:, None, None, :],
            "causal": True,
        },
        {"mask": randn(3, T, T, seed=9)},
        {"mask": randn(3, T, T, seed=9), "causal": True},
    ],
)
def test_the_fast_path_is_the_plain_one(d_in, n_kv_heads, options):
    layer = _many_heads(12, 3, d_in=d_in, n_kv_heads=n_kv_heads)
    agrees(
        lambda x: layer(x, **options),
        lambda x: layer.with_weights(x, **options).out,
        name="the plain path",
        cases=[(randn(B, T, d_in, seed=10),)],
        gradients=True,
    )


def test_a_head_is_an_attention_of_its_own():
    layer = _many_heads(12, 3, d_in=5)
    x, memory = randn(B, 4, 5, seed=11), randn(B, 6, 5, seed=12)
    parts = []
    for h in range(3):
        rows = slice(4 * h, 4 * h + 4)
        q = F.linear(x, layer.query.weight[rows], layer.query.bias[rows])
        k, v = (
            F.linear(memory, w[rows], b[rows])
            for w, b in zip(
                layer.key_value.weight.chunk(2), layer.key_value.bias.chunk(2)
            )
        )
        parts.append(F.scaled_dot_product_attention(q, k, v))
    theirs = layer.out(torch.cat(parts, -1))
    agrees(layer(x, memory), theirs, name="head by head")


def test_as_many_heads_of_keys_change_nothing():
    plain = _many_heads(12, 3)
    grouped = _many_heads(12, 3, n_kv_heads=3)
    shapes = {name: tuple(p.shape) for name, p in grouped.named_parameters()}
    assert shapes == {
        "query.weight": (12, 12),
        "query.bias": (12,),
        "key_value.weight": (24, 12),
        "key_value.bias": (24,),
        "out.weight": (12, 12),
        "out.bias": (12,),
    }
    grouped.load_state_dict(plain.state_dict())
    x = randn(B, T, 12, seed=50)
    for path in ("forward", "with_weights"):
        found = getattr(grouped, path)(x, causal=True)
        expected = getattr(plain, path)(x, causal=True)
        agrees(found, expected, name="without the option", within=0)


def _repeat_rows(grouped, n_heads):
    """The rows of W_K and W_V (or their biases) of a grouped layer, each
    head's as often as it is read."""
    n = n_heads // grouped.n_kv_heads

    def repeated(rows):
        halves = rows.unflatten(0, (2, grouped.n_kv_heads, -1))
        return halves.repeat_interleave(n, 1).flatten(0, 2)

    state = grouped.state_dict()
    return {
        name: repeated(a) if name.startswith("key_value") else a
        for name, a in state.items()
    }


@pytest.mark.parametrize("path", ["forward", "with_weights"])
@pytest.mark.parametrize("n_kv_heads", [1, 2])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rotary": True, "rotary_base": 50.0},
        {"d_memory": 5},
        {"bias": False},
    ],
)
def test_grouped_heads_are_a_whole_layer_with_rows_repeated(
    path, n_kv_heads, given
):
    grouped = _many_heads(16, 4, n_kv_heads=n_kv_heads, **given)
    whole = _many_heads(16, 4, **given)
    whole.load_state_dict(_repeat_rows(grouped, 4))
    assert len(grouped.key_value.weight) == 2 * n_kv_heads * 4
    args = (randn(B, T, 16, seed=51),)
    if "d_memory" in given:
        args += (randn(B, 9, 5, seed=52),)
    S = args[-1].shape[1]
    for options in (
        {},
        {"mask": randn(B, 4, T, S, seed=53) > -1},
        {"mask": padding_mask([S, 3])[:, None, None, :]},
        {"causal": True},
    ):
        ours, theirs = (
            partial(getattr(layer, path), **options)
            for layer in (grouped, whole)
        )
        if path == "forward":
            agrees(
                ours,
                theirs,
                name="rows repeated",
                cases=[args],
                gradients=True,
            )
            continue
        found, expected = ours(*args), theirs(*args)
        agrees(tuple(found), tuple(expected), name="rows repeated")
        assert found.weights.shape == (B, 4, T, S)


def test_grouped_heads_without_a_batch():
    layer = _many_heads(16, 4, n_kv_heads=2)
    x = randn(B, T, 16, seed=54)
    for path in (layer, lambda x: layer.with_weights(x).out):
        agrees(path(x)[1], path(x[1]), name="the row alone")


def test_the_gradients_of_shared_keys_are_summed_over_their_readers():
    grouped = _many_heads(16, 4, n_kv_heads=2)
    whole = _many_heads(16, 4)
    whole.load_state_dict(_repeat_rows(grouped, 4))
    x = randn(B, T, 16, seed=55)
    for layer in (grouped, whole):
        layer(x, causal=True).pow(2).sum().backward()
    theirs = whole.key_value.weight.grad.unflatten(0, (2, 2, 2, 4)).sum(2)
    agrees(
        grouped.key_value.weight.grad,
        theirs.flatten(0, 2),
        name="the sum",
        within=1e-11,
    )


def test_heads_split_and_merge():
    x = randn(B, T, 12, seed=13)
    agrees(merge_heads(split_heads(x, 3)), x, name="x", within=0)


def test_fewer_queries_than_keys_are_the_last_ones():
    layer = _many_heads(12, 3)
    x = randn(B, T, 12, seed=14)
    whole = layer(x, causal=True)
    for n in (1, 3):
        last = layer(x[:, -n:], x, causal=True)
        agrees(last, whole[:, -n:], name="the last rows of all")


def test_dropout_is_on_in_training_only():
    layer = MultiHeadAttention(12, 3, dropout=0.5)
    x = torch.ones(B, T, 12)
    layer.train()
    torch.manual_seed(0)
    assert not torch.equal(layer(x), layer(x))
    one, other = layer.with_weights(x), layer.with_weights(x)
    assert not torch.equal(one.out, other.out)
    agrees(one.weights, other.weights, name="no dropout", within=0)
    layer.eval()
    agrees(layer(x), layer(x), name="itself", within=0)


@pytest.mark.parametrize("path", ["forward", "with_weights"])
def test_dropout_reaches_weights_and_result(path):
    """With W_O the identity, a dropped component of the result is 0, and so
    is the context of a query whose only weight is dropped."""
    layer = MultiHeadAttention(2, 1, dropout=0.5, bias=False).train()
    nn.init.eye_(layer.out.weight)
    torch.manual_seed(0)
    out = getattr(layer, path)(torch.ones(4000, 1, 2))
    out = (out if path == "forward" else out.out)[:, 0]  # (4000, 2)
    both = (out == 0).all(-1).double().mean()
    # The weight falls out (1/2), or else both components do (1/2 · 1/4).
    assert abs(both - 0.625) < 0.03
    kept = out[(out != 0).all(-1)]
    agrees(
        kept,
        4 * layer.key_value(torch.ones(2))[2:].expand_as(kept),
        name="scaled up twice",
        within=1e-5,
    )


def test_attention_weights_of_a_model():
    block = TransformerBlock(12, 3, cross=True).double()
    x, memory = randn(B, 4, 12, seed=15), randn(B, 6, 12, seed=16)
    first, second = attention_weights(block, x, memory, causal=True)
    assert first.shape == (B, 3, 4, 4) and second.shape == (B, 3, 4, 6)
    assert not first.triu(1).any() and not first.requires_grad
    normed = block.attention_norm(x)
    ours, expected = block.attention.with_weights(normed, causal=True)
    agrees(first, expected, name="the layer's own")
    x = x + ours
    expected = block.cross_attention.with_weights(block.cross_norm(x), memory)
    agrees(second, expected.weights, name="the layer's own")
    assert not block.attention._forward_pre_hooks


@pytest.mark.parametrize("n_kv_heads, base", [(3, 10_000), (1, 300.0)])
def test_rotary_attention_agrees_with_transformers(n_kv_heads, base):
    config = LlamaConfig(
        hidden_size=24,
        num_attention_heads=3,
        num_key_value_heads=n_kv_heads,
        attn_implementation="sdpa",  # the eager one softens in float32
    )
    theirs = LlamaAttention(config, layer_idx=0).double()
    ours = MultiHeadAttention(
        24,
        3,
        bias=False,
        rotary=True,
        rotary_base=base,
        n_kv_heads=n_kv_heads,
    ).double()
    with torch.no_grad():
        ours.query.weight.copy_(theirs.q_proj.weight)
        ours.key_value.weight.copy_(
            torch.cat([theirs.k_proj.weight, theirs.v_proj.weight])
        )
        ours.out.weight.copy_(theirs.o_proj.weight)
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 20, 21]])
    angles = positions[..., None] * base ** (
        -torch.arange(0, 8, 2, dtype=torch.float64) / 8
    )
    angles = torch.cat([angles, angles], -1)  # (B, T, d_k)
    x = randn(2, 5, 24, seed=17)
    expected, _ = theirs(
        x,
        position_embeddings=(angles.cos(), angles.sin()),
        attention_mask=None,
    )
    found = ours(x, positions=positions, causal=True)
    agrees(found, expected, name="transformers")
    agrees(ours(x[:1], causal=True), expected[:1], name="transformers")


def test_a_block_hands_positions_to_its_attention():
    block = TransformerBlock(12, 3, rotary=True).double()
    x, positions = randn(B, 4, 12, seed=34), torch.tensor([0, 1, 5, 6])
    stream = x + block.attention(block.attention_norm(x), positions=positions)
    expected = stream + block.feed_forward(block.feed_forward_norm(stream))
    agrees(block(x, positions=positions), expected, name="by hand")
    assert not torch.allclose(block(x), expected)


def test_a_block_hands_the_base_to_its_attention():
    block = TransformerBlock(12, 3, rotary=True, rotary_base=30.0).double()
    plain = TransformerBlock(12, 3).double()
    plain.load_state_dict(block.state_dict())
    x = randn(B, 4, 12, seed=56)
    angles = rotary_angles(torch.arange(4), 4, base=30.0)
    q, k, v = plain.attention.project(x)
    agrees(
        block.attention.project(x),
        (rotate(q, angles), rotate(k, angles), v),
        name="by hand",
    )
    assert not torch.allclose(block(x), plain(x))


def _swish(x):
    return x / (1 + (-x).exp())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("cross", [False, True])
def test_a_block_of_the_newer_kind_is_its_formula(cross, norm_first, bias):
    """RMS norms, a gate, grouped heads, written out."""
    torch.manual_seed(3)
    block = TransformerBlock(
        12,
        6,
        d_ff=10,
        norm="rms",
        norm_eps=0.3,
        activation="swiglu",
        n_kv_heads=2,
        norm_first=norm_first,
        cross=cross,
        bias=bias,
    ).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    names = {name for name, _ in block.named_parameters()}
    assert ("feed_forward.gate.bias" in names) == bias
    assert not any("norm.bias" in name for name in names)

    def norm(layer, x):
        mean = x.pow(2).mean(-1, keepdim=True)
        return x / (mean + 0.3).sqrt() * layer.weight

    def gated(x):
        f = block.feed_forward
        return f.down(_swish(f.gate(x)) * f.up(x))

    def attended(x):
        return block.attention.with_weights(x, causal=True).out

    parts = [(block.attention_norm, attended)]
    x, memory = randn(B, T, 12, seed=57), randn(B, 4, 12, seed=58)
    if cross:
        parts.append(
            (
                block.cross_norm,
                lambda x: block.cross_attention.with_weights(x, memory).out,
            )
        )
    parts.append((block.feed_forward_norm, gated))
    expected = x
    for layer, part in parts:
        expected = (
            expected + part(norm(layer, expected))
            if norm_first
            else norm(layer, expected + part(expected))
        )
    found = block(x, memory if cross else None, causal=True)
    agrees(found, expected, name="the formula", within=1e-11)


def test_norms_by_name():
    layer = make_norm("layer", 5, eps=0.2)
    assert isinstance(layer, LayerNorm) and layer.eps == 0.2
    assert layer.bias.shape == (5,)
    assert make_norm("layer", 5, bias=False).bias is None
    for bias in (True, False):
        layer = make_norm("rms", 5, eps=0.2, bias=bias)
        assert isinstance(layer, RMSNorm) and layer.eps == 0.2
        assert [name for name, _ in layer.named_parameters()] == ["weight"]
    assert make_norm("rms", 5).eps == make_norm("layer", 5).eps == 1e-5


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_agrees_with_torch(bias):
    ours, theirs = LayerNorm(5, bias=bias), nn.LayerNorm(5, bias=bias)
    weight = randn(5, seed=18)
    shift = randn(5, seed=19) if bias else None
    for layer in (ours.double(), theirs.double()):
        layer.weight.data = weight
        if bias:
            layer.bias.data = shift
    cases = [(randn(5, seed=20),), (randn(2, 3, 5, seed=21) * 100 + 7,)]
    options = {"cases": cases, "gradients": True, "within": 1e-11}
    agrees(ours, theirs, name="nn.LayerNorm", **options)
    plain = norms.layer_norm
    agrees(lambda x: plain(x, weight, shift), theirs, name="torch", **options)
    constant = torch.full((2, 5), 3.0, dtype=torch.float64)
    agrees(plain(constant), 0 * constant, name="zero")


def test_rms_norm_agrees_with_torch():
    ours, theirs = RMSNorm(5).double(), nn.RMSNorm(5, eps=1e-5).double()
    weight = randn(5, seed=22)
    ours.weight.data = theirs.weight.data = weight
    cases = [(randn(5, seed=23),), (randn(2, 3, 5, seed=24) * 100 + 7,)]
    options = {"cases": cases, "gradients": True}
    agrees(ours, theirs, name="nn.RMSNorm", **options)
    plain = norms.rms_norm
    agrees(lambda x: plain(x, weight), theirs, name="torch", **options)
    zeros = torch.zeros(2, 5, dtype=torch.float64)
    agrees(plain(zeros), zeros, name="zero")


@pytest.mark.parametrize(
    "name, module",
    [
        ("relu", nn.ReLU()),
        ("gelu", nn.GELU()),
        ("silu", nn.SiLU()),
        ("gelu_tanh", nn.GELU(approximate="tanh")),
    ],
)
def test_feed_forward_agrees_with_torch(name, module):
    assert name in ACTIVATIONS
    ours = FeedForward(4, activation=name).double()
    theirs = nn.Sequential(nn.Linear(4, 16), module, nn.Linear(16, 4))
    theirs = theirs.double()
    theirs[0].load_state_dict(ours.up.state_dict())
    theirs[2].load_state_dict(ours.down.state_dict())
    cases = [(randn(4, seed=25),), (randn(2, 3, 4, seed=26),)]
    agrees(ours, theirs, name=name, cases=cases, gradients=True)


def test_swiglu_is_its_formula_and_as_large_as_a_feed_forward():
    layer = SwiGLU(6, bias=False).double()
    x = randn(2, 3, 6, seed=27)
    gate = x @ layer.gate.weight.T
    expected = gate * gate.sigmoid() * (x @ layer.up.weight.T)
    agrees(layer(x), expected @ layer.down.weight.T, name="the formula")
    count = sum(p.numel() for p in layer.parameters())
    plain = FeedForward(6, bias=False)
    assert count == sum(p.numel() for p in plain.parameters())


@pytest.mark.parametrize("layer", [FeedForward, SwiGLU])
def test_feed_forward_drops_out_in_training_only(layer):
    layer, x = layer(8, dropout=0.5), torch.ones(100, 8)
    torch.manual_seed(0)
    zeros = (layer(x) == 0).double().mean()
    assert abs(zeros - 0.5) < 0.1
    assert not (layer.eval()(x) == 0).any()


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("cross", [False, True])
def test_a_block_agrees_with_torch(norm_first, cross):
    ours = TransformerBlock(
        12, 3, d_ff=20, norm_first=norm_first, cross=cross, activation="relu"
    ).double()
    theirs = (
        nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    )(12, 3, 20, dropout=0.0, norm_first=norm_first, batch_first=True).double()
    norms = [ours.attention_norm, ours.feed_forward_norm]
    if cross:
        norms.insert(1, ours.cross_norm)
    for seed, norm in enumerate(norms):
        norm.weight.data = randn(12, seed=30 + seed)
        norm.bias.data = randn(12, seed=40 + seed)
        getattr(theirs, f"norm{seed + 1}").load_state_dict(norm.state_dict())
    theirs.self_attn = _theirs_of(ours.attention)
    theirs.linear1.load_state_dict(ours.feed_forward.up.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.down.state_dict())
    x, memory = randn(B, T, 12, seed=28), randn(B, 4, 12, seed=29)
    later = ~causal_mask(T)
    if cross:
        theirs.multihead_attn = _theirs_of(ours.cross_attention)
        real = padding_mask([4, 2])
        agrees(
            lambda x, m: ours(
                x, m, causal=True, memory_mask=real[:, None, None, :]
            ),
            lambda x, m: theirs(
                x, m, tgt_mask=later, memory_key_padding_mask=~real
            ),
            name="torch",
            cases=[(x, memory)],
            gradients=True,
            within=1e-11,
        )
    else:
        agrees(
            lambda x: ours(x, causal=True),
            lambda x: theirs(x, later),
            name="torch",
            cases=[(x,)],
            gradients=True,
            within=1e-11,
        )


def test_a_block_agrees_with_gpt2():
    config = GPT2Config(
        n_embd=12,
        n_head=3,
        vocab_size=9,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="eager",
    )
    theirs = GPT2Block(config, layer_idx=0).double().eval()
    ours = TransformerBlock(12, 3).double()
    c_attn = theirs.attn.c_attn
    with torch.no_grad():
        q, k, v = c_attn.weight.T.chunk(3)  # stored as (d_in, d_out)
        b_q, b_k, b_v = nn.init.normal_(c_attn.bias).chunk(3)
        ours.attention.query.weight.copy_(q)
        ours.attention.query.bias.copy_(b_q)
        ours.attention.key_value.weight.copy_(torch.cat([k, v]))
        ours.attention.key_value.bias.copy_(torch.cat([b_k, b_v]))
        for mine, their in (
            (ours.attention.out, theirs.attn.c_proj),
            (ours.feed_forward.up, theirs.mlp.c_fc),
            (ours.feed_forward.down, theirs.mlp.c_proj),
        ):
            mine.weight.copy_(their.weight.T)
            mine.bias.copy_(their.bias)
    x = randn(B, T, 12, seed=33)
    later = torch.zeros(T, T, dtype=torch.float64).masked_fill(
        ~causal_mask(T), -torch.inf
    )
    agrees(
        lambda x: ours(x, causal=True),
        lambda x: theirs(x, attention_mask=later[None, None]),
        name="GPT-2's block",
        cases=[(x,)],
        gradients=True,
        within=1e-11,
    )


def test_values_are_as_wide_as_keys_unless_told():
    assert SelfAttention(D_IN, D_K)(torch.ones(2, D_IN)).shape == (2, D_K)


def heads(*args, **options):
    """A call of a layer of many heads with tokens of these shapes."""
    mask = options.pop("mask", None)
    tokens = [torch.ones(shape) for shape in args]
    return MultiHeadAttention(12, 6, **options)(*tokens, mask=mask)


X = torch.ones(3, 4)


@pytest.mark.parametrize(
    "call, error, named",
    [
        (lambda: SelfAttention(0, 3), ValueError, "d_in"),
        (lambda: SelfAttention(4, 3, 0), ValueError, "d_v"),
        (lambda: SelfAttention(4, 2.5), TypeError, "d_k"),
        (lambda: SelfAttention(5, 3)(X), ValueError, "d_in of x"),
        (lambda: SelfAttention(4, 3)(X[0]), ValueError, "axis T"),
        (lambda: SelfAttention(4, 3)(X[:0]), ValueError, "T of x"),
        (lambda: SelfAttention(4, 3)(X * torch.nan), ValueError, "q contains"),
        (lambda: SelfAttention(4, 3)(X * torch.inf), ValueError, "q contains"),
        (lambda: SelfAttention(4, 3)(X, X[:, :2] > 0), ValueError, "mask"),
        (lambda: SelfAttention(4, 3)(X, X[:, :3]), TypeError, "mask"),
        (lambda: SelfAttention(4, 3)(X.double()), TypeError, "x is"),
        (lambda: SelfAttention(4, 3)([[1.0] * 4]), TypeError, "x is"),
        (lambda: MultiHeadAttention(12, 5), ValueError, "n_heads"),
        (lambda: MultiHeadAttention(12, 6.0), TypeError, "n_heads"),
        (lambda: MultiHeadAttention(12, 6, d_in=0), ValueError, "d_in"),
        (lambda: MultiHeadAttention(12, 6, d_memory=0), ValueError, "d_mem"),
        (lambda: MultiHeadAttention(12, 6, dropout=1.5), ValueError, "drop"),
        (lambda: MultiHeadAttention(12, 6, n_kv_heads=4), ValueError, "n_kv"),
        (lambda: MultiHeadAttention(12, 6, n_kv_heads=0), ValueError, "n_kv"),
        (lambda: heads((4, 12), mask=causal_mask(3)), ValueError, "mask"),
        (
            lambda: heads((2, 4, 12), mask=torch.ones(2, 4, 4) > 0),
            ValueError,
            "mask",
        ),
        (
            lambda: heads(
                (2, 4, 12), mask=torch.ones(2, 2, 4, 4) > 0, n_kv_heads=2
            ),
            ValueError,
            "mask",
        ),
        (lambda: heads((4, 12), (4, 11)), ValueError, "d_memory of memory"),
        (lambda: heads((4, 12), (0, 12)), ValueError, "S of memory"),
        (lambda: heads((2, 4, 12), (3, 5, 12)), ValueError, "leading axes"),
        (lambda: heads((4, 12), (4, 12), rotary=True), ValueError, "memory"),
        (lambda: make_norm("batch", 4), ValueError, "norm"),
        (lambda: make_norm("rms", 0), ValueError, "width"),
        (lambda: LayerNorm(0), ValueError, "width"),
        (lambda: LayerNorm(4, eps=-1), ValueError, "eps"),
        (lambda: LayerNorm(3)(X), ValueError, "width of x"),
        (lambda: LayerNorm(4)(X.double()), TypeError, "x is"),
        (lambda: RMSNorm(3)(torch.ones(())), ValueError, "axis width"),
        (lambda: FeedForward(4, activation="tanh"), ValueError, "activation"),
        (lambda: FeedForward(4, 0), ValueError, "d_ff"),
        (lambda: FeedForward(4, dropout=1.0), ValueError, "dropout"),
        (lambda: FeedForward(5)(X), ValueError, "d_model of x"),
        (lambda: SwiGLU(5)(X), ValueError, "d_model of x"),
        (lambda: SwiGLU(4, dropout=-1), ValueError, "dropout"),
        (lambda: TransformerBlock(12, 3, norm="batch"), ValueError, "norm"),
        (lambda: TransformerBlock(4, 2, activation="x"), ValueError, "activ"),
        (lambda: TransformerBlock(4, 2)(X, X), ValueError, "memory"),
        (lambda: TransformerBlock(4, 2, cross=True)(X), ValueError, "memory"),
    ],
)
def test_bad_input_is_named(call, error, named):
    with pytest.raises(error, match=f"{named}.*; expected .*; got "):
        call()


def test_rotary_with_a_cache_must_know_the_positions():
    layer = MultiHeadAttention(8, 2, rotary=True)
    with pytest.raises(ValueError, match=r"expected positions \(\.\.\., T\)"):
        layer(torch.zeros(1, 2, 8), cache=object())


def test_every_layer_has_biases_unless_told():
    for new in (
        lambda **options: SelfAttention(4, 2, **options),
        lambda **options: MultiHeadAttention(4, 2, **options),
        lambda **options: TransformerBlock(4, 2, cross=True, **options),
        lambda **options: FeedForward(4, **options),
        lambda **options: SwiGLU(4, **options),
        lambda **options: LayerNorm(4, **options),
    ):
        linear = [m for m in new().modules() if hasattr(m, "bias")]
        assert linear and all(m.bias is not None for m in linear)
        without = new(bias=False).modules()
        assert all(getattr(m, "bias", None) is None for m in without)


def test_feed_forwards_by_name():
    assert set(FEED_FORWARDS) == {*ACTIVATIONS, "swiglu"}
    for name, new in FEED_FORWARDS.items():
        layer, x = new(4, 6), randn(2, 4, seed=1).float()
        bent = getattr(layer, "activation", "silu")
        assert bent == ("silu" if name == "swiglu" else name)
        inner = ACTIVATIONS[bent](
            (layer.gate if name == "swiglu" else layer.up)(x)
        )
        inner = inner * layer.up(x) if name == "swiglu" else inner
        agrees(layer(x), layer.down(inner), name=name, within=1e-6)
