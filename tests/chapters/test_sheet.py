"""The sheet to keep: what stands in its tables is run as it stands there."""

import re
import sys

import pytest
import torch
import torch.nn.functional as F
from book import Page, as_a_page
from notebooks import CHAPTERS, read
from torch import nn

from attnbook import masks, positions
from attnbook.cache import KVCache, RollingCache
from attnbook.collectives import all_gather, all_reduce, reduce_scatter
from attnbook.gpt import GPT, GPTConfig
from attnbook.hybrid import StateCache
from attnbook.layers import TransformerBlock
from attnbook.reward import best_law
from attnbook.rounded_cache import RoundedCache
from attnbook.teach.catalogue import all_mistakes
from attnbook.wire import on_threads

SHEET = CHAPTERS / "sheet.ipynb"
TEXT = "\n".join(c.source for c in read(SHEET).cells if c.cell_type != "code")
ROWS = {
    cells[0]: cells[1:]
    for line in TEXT.splitlines()
    if line.startswith("| ") and (cells := line.strip("| ").split(" | "))
}

#: No two of them are equal, so that no name can stand for another.
SIZES = dict(
    B=5,
    T=7,
    S=11,
    H=4,
    H_kv=2,
    d=12,
    d_k=3,
    d_v=6,
    d_ff=10,
    V=13,
    L=1,
    C=14,
)


def code(text):
    """What stands in a text as code."""
    return re.findall("`([^`]+)`", text)


def values(text, **names):
    """What the code in a text is worth; ``t = …`` names a part of the rest."""
    names = {**vars(torch), "min": min, **names}
    found = sorted(code(text), key=lambda part: " = " not in part)
    for part in [p for p in found if " = " in p]:
        exec(part, {}, names)
    return [eval(part, {}, names) for part in found if " = " not in part]


def value(text, **names):
    (found,) = values(text, **names)
    return found


def randn(*size, seed=0):
    torch.manual_seed(seed)
    return torch.randn(*size, dtype=torch.float64)


def inside(fn, *args):
    """All that a function has named when it returns."""
    found = {}

    def look(frame, event, _):
        if event == "return" and frame.f_code is fn.__code__:
            found.update(frame.f_locals)

    sys.setprofile(look)
    try:
        fn(*args)
    finally:
        sys.setprofile(None)
    return found


def test_the_sheet_has_twelve_lines_and_ten_mistakes_that_are_known():
    (lines,) = (
        c.source for c in read(SHEET).cells if c.source.startswith("def att")
    )
    assert len(lines.splitlines()) == 12
    links = re.findall(r"^\d+\. .*: \[`(\w+)`\]\(.*#(\w+)\)\.$", TEXT, re.M)
    assert len(links) == 10 and all(a == b for a, b in links)
    assert {name for name, _ in links} <= set(all_mistakes())


def test_the_sheet_has_the_shapes_of_tensors():
    B, T, S, H, H_kv, d, d_k, d_v, d_ff, V, L, C = SIZES.values()
    page = Page(SHEET)
    with as_a_page():
        assert page.run() is None
    x = torch.ones(B, T, d)
    past = S - T
    kept = torch.ones(B, H_kv, past, d_k), torch.ones(B, H_kv, past, d_v)
    widths = H * d_k, H_kv * d_k, H_kv * d_v
    weights = [torch.ones(d, width) for width in widths]
    w_o = torch.ones(H * d_v, d)
    seen = inside(page.names["attention"], x, *kept, *weights, w_o, H, H_kv)
    sizes = dict(d_model=d, n_heads=H, n_kv_heads=H_kv, n_layers=L, d_ff=d_ff)
    model = GPT(GPTConfig(V, C, **sizes))
    tokens = torch.ones(B, T).long()
    cache = model.new_cache(B)
    seen |= {
        "tokens": tokens,
        "logits": model(tokens),
        "embedding": model.token_embedding.weight,
        "hidden": model.blocks[0].feed_forward.up(x),
        "γ": model.norm.weight,
        "β": model.norm.bias,
        "cache.keys": cache.keys,
    }
    compared = []
    for first, cells in ROWS.items():
        if len(cells) == 3 and cells[2].startswith("`("):
            for names, shape in (first, cells[0]), cells[1:]:
                for name in code(names):
                    assert value(shape, **SIZES) == seen[name].shape, name
                    compared.append(name)
    assert len(compared) == len(set(compared)) == 21
    assert nn.Linear(d, V).weight.shape == (V, d)


def test_the_sheet_has_the_masks_of_every_convention():
    T, S, w = 3, 5, 2
    sizes = dict(T=T, S=S, B=2, w=w)
    lengths = torch.tensor([3, 5])
    real = masks.padding_mask(lengths)
    sizes["causal"] = causal = value(ROWS["causal"][0], **sizes)
    assert causal.equal(masks.causal_mask(T, S))
    window = value(ROWS["a window of w"][0], **sizes)
    near = masks.window_mask(T, S, window=w)
    assert window.equal(masks.combine(masks.causal_mask(T, S), near))
    padding, _ = values(ROWS["padding"][0], real=real)
    assert padding.shape == value(ROWS["padding"][1], **sizes)
    for name, mask in {"causal": causal, "a window of w": window}.items():
        assert mask.shape == value(ROWS[name][1], **sizes)

    q, k, v = randn(2, T, 4), randn(2, S, 4), randn(2, S, 4, seed=1)
    layer = nn.MultiheadAttention(
        4, 1, bias=False, batch_first=True, dtype=torch.float64
    )
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(4))
    told = {first.split()[0]: cells for first, cells in ROWS.items()}
    for allowed, options in (
        (causal.expand(2, T, S), lambda m: {"attn_mask": m}),
        (real, lambda m: {"key_padding_mask": m}),
    ):
        mask = allowed if allowed.ndim == 3 else allowed[:, None]
        weights = (q @ k.mT / 2).masked_fill(~mask, -torch.inf).softmax(-1)
        hidden = value(told["`nn.MultiheadAttention`,"][2], mask=allowed)
        theirs, _ = layer(q, k, v, **options(hidden))
        torch.testing.assert_close(theirs, weights @ v)
        for name in "this", "added":
            given = value(told[name][2], mask=mask)
            theirs = F.scaled_dot_product_attention(q, k, v, given)
            torch.testing.assert_close(theirs, weights @ v)
    said = {"`True`": True, "`False`": False, "1": 1, "0": 0, "−∞": -torch.inf}
    both = torch.tensor([True, False])
    signs = [row for row in told.values() if row[0] in said]
    for *row, ours in signs:
        found = value(ours, mask=both, real=both)
        assert found.tolist() == [said[sign] for sign in row]
    assert len(signs) == 4
    as_integers = value(told["transformers'"][2], real=real)
    assert as_integers.equal(masks.convert(real, "sdpa", "transformers"))
    counted = value(told["lengths,"][2], real=real)
    assert counted.equal(lengths)
    (line,) = re.findall(r"Positions count .*?\. ", TEXT)
    for side in "left", "right":
        real = masks.padding_mask(lengths, side=side)
        place = value(line, real=real)
        assert place.equal(positions.token_positions(real))
    theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    first = torch.ones(T, S).bool().tril()
    ours = F.scaled_dot_product_attention(q, k, v, first)
    torch.testing.assert_close(theirs, ours)
    nothing = torch.full((S,), -torch.inf)
    assert torch.softmax(nothing, -1).isnan().all()


def test_the_sheet_has_the_norms_of_torch():
    d = 6
    x = randn(3, 6)
    gain = randn(6, seed=1)
    bias = randn(6, seed=2)
    names = dict(x=x, γ=gain, β=bias, ε=0.1, d=d)
    names["mean"] = lambda a: a.mean(-1, keepdim=True)
    names["var"] = lambda a: a.var(-1, correction=0, keepdim=True)
    for name, theirs, layer in (
        ("layer norm", F.layer_norm(x, (d,), gain, bias, 0.1), nn.LayerNorm),
        ("RMS norm", F.rms_norm(x, (d,), gain, 0.1), nn.RMSNorm),
    ):
        formula, learned, _ = ROWS[name]
        torch.testing.assert_close(value(formula, **names), theirs)
        count = sum(p.numel() for p in layer(d).parameters())
        assert value(learned, d=d) == count
    for name, first in {"pre-norm": True, "post-norm": False}.items():
        block = TransformerBlock(d, 2, norm_first=first).double()
        f, norm = block.feed_forward, block.feed_forward_norm
        theirs = block.add(x, f, norm)
        found = value(ROWS[name][0], x=x, f=f, norm=norm)
        torch.testing.assert_close(found, theirs)


def test_the_sheet_has_the_positions_of_the_package():
    d, T, H = 6, 4, 8
    at, n = torch.arange(T), torch.arange(d // 2).double()
    names = dict(p=at[:, None], n=n, d=d, d_k=d, base=10_000.0)
    table = randn(T, d)
    x = randn(T, d, seed=1)
    found = value(ROWS["learned"][0], x=x, table=table, p=at)
    assert found.equal(x + nn.Embedding.from_pretrained(table)(at))
    waves = positions.sinusoidal(at, d)
    sin, cos = values(ROWS["sinusoidal"][0], **names)
    torch.testing.assert_close(torch.stack([sin, cos], -1).flatten(1), waves)
    a, b = x.chunk(2, -1)
    turned = values(ROWS["rotary"][0], a=a, b=b, **names)
    angles = positions.rotary_angles(at, d)
    theirs = positions.rotate(x, angles)
    torch.testing.assert_close(torch.cat(turned, -1), theirs)
    a, b = x[:, 0::2], x[:, 1::2]
    turned = values(ROWS["rotary"][0], a=a, b=b, **names)
    theirs = positions.rotate(x, angles, layout="interleaved")
    torch.testing.assert_close(torch.stack(turned, -1).flatten(1), theirs)
    h = torch.arange(1, H + 1)[:, None, None].double()
    lower = dict(s=0.0, h=h, H=H, i=at[:, None], j=at)
    biased = value(ROWS["ALiBi"][0], **lower)
    torch.testing.assert_close(biased, positions.alibi_bias(H, at, at))


def test_the_sheet_has_the_bytes_of_caches():
    part = TEXT[TEXT.index("## What a cache costs") :]
    sizes = {
        name: int(number.replace(",", ""))
        for name, number in re.findall(r"\b(\w+) = ([\d,]*\d)", part)
    }
    S, w, L, d_k = (sizes[name] for name in ("S", "w", "L", "d_k"))
    some = dict(n_layers=L, dtype=torch.bfloat16, device="meta")
    H, H_kv = sizes["H"], sizes["H_kv"]
    caches = {
        "multi-head": KVCache(1, S, n_heads=H, d_k=d_k, **some),
        "grouped": KVCache(1, S, n_heads=H_kv, d_k=d_k, **some),
        "multi-query": KVCache(1, S, n_heads=1, d_k=d_k, **some),
        "grouped, a window": RollingCache(1, w, n_heads=H_kv, d_k=d_k, **some),
        "latent": KVCache(
            1, S, n_heads=1, d_k=sizes["d_r"], d_v=sizes["d_c"], **some
        ),
    }
    rows = [(n, r) for n, r in ROWS.items() if r[-1].endswith(" GB")]
    for (name, cache), (first, row) in zip(caches.items(), rows, strict=True):
        assert first.startswith(name)
        numbers, kept = value(row[0], **sizes), value(row[1], **sizes)
        (formula,) = re.findall("A token takes (`.*?`)", part)
        token = value(formula, numbers=numbers, **sizes)
        assert token * kept == cache.nbytes
        assert kept == cache.capacity
        assert row[2:] == [f"{token:,}", f"{cache.nbytes / 1e9:.1f} GB"]
    states = {"state_layers": range(L), "n_heads": H, "d_k": d_k}
    state = StateCache(1, 1, **states, **some)
    (formula,) = re.findall(r"4 taps keeps (`.*?`)", part)
    assert 2 * L * value(formula, **sizes) == state.nbytes
    assert f"{state.nbytes / 1e6:.1f} MB here" in part
    small = RoundedCache(
        1, S, n_layers=L, n_heads=H, d_k=d_k, bits=4, device="meta"
    )
    (formula,) = re.findall(r"a layer keeps (`.*?`) bytes a token", part)
    assert L * S * value(formula, **sizes) == small.nbytes
    assert f"{small.nbytes / 1e9:.1f} GB here" in part


def test_the_sheet_has_the_best_law_of_a_reward():
    p = torch.tensor([0.5, 0.25, 0.25]).double()
    r = torch.tensor([0.0, 0.0, 1.0]).double()
    (formula,) = re.findall(r"have the best law (`.*?`)", TEXT)
    for beta in (0.2, 2.0):
        found = value(formula, p=p, r=r, β=beta)
        torch.testing.assert_close(found, best_law(p, r, beta))


@pytest.mark.parametrize("N", [1, 3, 4])
def test_the_sheet_has_the_bytes_that_ranks_send(N):
    x = torch.ones(24)
    found = re.search(
        r"all-reduce of S bytes sends (`.*?`) in all.*?(`.*?`)", TEXT
    )
    whole, half = (value(f, N=N, S=4 * 24) for f in found.groups())

    def sent_by(work):
        def of_one(wire):
            work(wire)
            return wire.sent

        return sum(on_threads(N, of_one))

    assert sent_by(lambda wire: all_reduce(wire, x)) == whole
    assert (
        sent_by(lambda wire: reduce_scatter(wire, x.tensor_split(N))) == half
    )
    shapes = [part.shape for part in x.tensor_split(N)]
    gathered = sent_by(
        lambda wire: all_gather(wire, x.tensor_split(N)[wire.rank], shapes)
    )
    assert gathered == half
