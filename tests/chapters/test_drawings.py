"""The shapes that stand in a drawing are those of tensors."""

import re
from urllib.parse import unquote
from xml.etree import ElementTree as xml

import pytest
import torch
import torch.nn.functional as F
from bs4 import BeautifulSoup
from notebooks import CHAPTERS
from transformers import GPT2Config, GPT2Model

from attnbook.attention import merge_heads, scaled_dot_product_attention
from attnbook.feed_forward import FeedForward
from attnbook.generate import draw, keep_top_k
from attnbook.gpt import GPT, GPTConfig
from attnbook.layers import MultiHeadAttention, SelfAttention, TransformerBlock
from attnbook.merging import attend_to_part
from attnbook.norms import layer_norm as normed
from attnbook.pages import Pages
from attnbook.positions import alibi_bias, sinusoidal
from attnbook.quantised import by_scale
from attnbook.teach.catalogue.c12_real_text import encode_bytes, learn_merges
from attnbook.teach.catalogue.c18_fewer_keys import rolling_step, sink_mask
from attnbook.teach.catalogue.c21_states import step_by_step
from attnbook.teach.catalogue.c22_bits import round_groups
from attnbook.teach.catalogue.c24_hands import feed_forward_on_ranks
from attnbook.teach.page import drawings
from attnbook.teach.page.drawings import DRAWINGS, in_the_page
from attnbook.text import book_text

SIZES = {"T": 5, "d_model": 12, "d_k": 3, "d_v": 2}


def self_attention():
    x = torch.randn(5, 12)
    seen = SelfAttention(12, 3, 2, bias=False).stages(x)
    return SIZES, seen._asdict() | {"x": x}


def self_attention_plain():
    x = torch.randn(5, 12)
    scores = x @ x.mT
    weights = torch.softmax(scores, -1)
    seen = {"x": x, "scores": scores, "weights": weights}
    return {"T": 5, "d": 12}, seen | {"context": weights @ x}


def weighted_average():
    values, weights = torch.tensor([[90.0, 120.0, 100.0], [0.1, 0.3, 0.6]])
    terms = weights * values
    tensors = {"values": values, "weights": weights, "terms": terms}
    return {"S": 3}, tensors | {"average": terms.sum()}


def multi_head_attention():
    x = torch.randn(5, 12)
    layer = MultiHeadAttention(12, 2)
    y, weights = layer.with_weights(x)
    q, _, v = layer.project(x)  # (H, T, d/H)
    context = weights @ v
    each = {"q": q[0], "weights": weights[0], "context": context[0]}
    rows = layer.out.weight.T.unflatten(0, (2, 6))[0]
    one = {"joined": merge_heads(context), "w_out": layer.out.weight}
    return {"T": 5, "d": 12, "H": 2}, each | one | dict(x=x, y=y, rows=rows)


sum_of_heads = multi_head_attention


def cut_heads():
    queries = 10 * torch.arange(4)[:, None] + torch.arange(6)
    cut = queries.unflatten(-1, (2, 3))
    heads = cut.transpose(0, 1)
    return {"T": 4, "d": 6, "H": 2, "d_k": 3}, locals()


def grouped_queries():
    layer = MultiHeadAttention(12, 4, n_kv_heads=2)
    q, k, _ = layer.project(torch.randn(5, 12))
    return {"T": 5, "H": 4, "H_kv": 2, "d_k": 3}, {"q": q, "k": k}


def scaled_attention():
    q, k, v = torch.randn(5, 3), torch.randn(7, 3), torch.randn(7, 2)
    scores = q @ k.T
    scaled = q @ k.T / 3**0.5
    context, weights = scaled_dot_product_attention(q, k, v)
    return {"T": 5, "S": 7, "d_k": 3, "d_v": 2}, locals()


def masked_attention():
    x = torch.randn(5, 12)
    mask = torch.ones(5, 5).bool().tril()
    seen = SelfAttention(12, 3, 2).stages(x, mask)
    return SIZES, seen._asdict() | {"x": x, "mask": mask}


def feed_forward():
    x = torch.randn(5, 3)
    layer = FeedForward(3, 12)
    hidden = layer.up(x)
    bent = F.gelu(hidden)
    out = layer.down(bent)
    return {"T": 5, "d_model": 3, "d_ff": 12}, locals()


def layer_norm():
    x = torch.randn(5, 12)
    gain = torch.ones(12)
    bias = torch.zeros(12)
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    normal = normed(x)
    y = normed(x, gain, bias)
    return {"T": 5, "d": 12}, locals()


def batch_norm():
    x = torch.randn(5, 12)
    return {"T": 5, "d": 12}, {"x": x, "mean": x.mean(0)}


def positions():
    x, at = torch.randn(5, 12), torch.arange(5)
    position = sinusoidal(at, 12).float()
    bias = alibi_bias(1, at, at)[0]
    seen = SelfAttention(12, 3, 2).stages(x + position)
    return SIZES, seen._asdict() | locals()


def block():
    x = torch.randn(5, 12)
    layer = TransformerBlock(12, 3)
    heard = layer.attention(normed(x))
    middle = x + heard
    made = layer.feed_forward(normed(middle))
    tensors = {"x": x, "normed": normed(x), "heard": heard, "made": made}
    tensors |= {"middle": middle, "normed_middle": normed(middle)}
    return {"T": 5, "d": 12}, tensors | {"y": layer(x)}


block_post_norm = block


def encoder_decoder():
    x, y = torch.randn(7, 12), torch.randn(5, 12)
    block, cross = TransformerBlock(12, 3), MultiHeadAttention(12, 3)
    memory = normed(x)
    middle = y + block.attention(normed(y), causal=True)
    q, k, v = cross.project(middle, memory)
    heard, weights = cross.with_weights(middle, memory)
    heard_too = middle + heard
    out = normed(heard_too + block.feed_forward(normed(heard_too)))
    return {"S": 7, "T": 5, "d": 12, "H": 3, "d_k": 4}, locals()


def cache_step():
    head = SelfAttention(12, 3, 2)
    x = torch.randn(6, 12)
    q, k, v = head.project(x[-1:])
    _, keys, values = head.project(x)
    context, weights = scaled_dot_product_attention(q, keys, values)
    sizes = {"S": 6, "d_model": 12, "d_k": 3, "d_v": 2}
    return sizes, locals() | {"x": x[-1:]}


def tiles():
    q, k, v = torch.randn(10, 3), torch.randn(15, 3), torch.randn(15, 2)
    q_tile, k_tile, v_tile = q[4:6], k[6:9], v[6:9]
    peak, total, context = attend_to_part(q_tile, k_tile, v_tile)
    scores = q_tile @ k_tile.T
    return {"rows": 2, "columns": 3, "d_k": 3, "d_v": 2}, locals()


def two_memories():
    q, k, v = torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 2)
    scores = q @ k.T
    context, weights = scaled_dot_product_attention(q, k, v)
    return {"T": 5, "d_k": 3, "d_v": 2}, locals()


def latent_step():
    x = torch.randn(6, 12)
    w_query, w_down = torch.randn(2, 12, 3)
    w_down = w_down[:, :2]
    U = torch.randn(2, 3)
    V = torch.randn(2, 4)
    latents = x @ w_down
    q = x[-1:] @ w_query
    asked = q @ U.T
    c = latents[-1:]
    weights = (asked @ latents.T / 3**0.5).softmax(-1)
    average = weights @ latents
    sizes = {"S": 6, "d_model": 12, "d_k": 3, "d_c": 2, "d_v": 4}
    return sizes, locals() | {"x": x[-1:], "context": average @ V}


def ring():
    slots = torch.randn(4, 2)
    k = torch.randn(2, 2)
    kept = 4
    q, no_v = torch.randn(2, 2), torch.zeros(4, 2)
    _, stored, _ = rolling_step.right(q, k, k, slots, no_v, kept)
    k_all = torch.cat([slots, k])
    sizes = {"w": 4, "T": 2, "d": 2, "kept": kept}
    return sizes, locals() | {"keys": slots}


def window_reach():
    x = torch.randn(6, 12, requires_grad=True)
    one, two = TransformerBlock(12, 3), TransformerBlock(12, 3)
    mask = sink_mask.right(6, 6, window=3)
    first = one(x[None], mask=mask)[0]
    second = two(first[None], mask=mask)[0]
    (gradient,) = torch.autograd.grad(second[5].sum(), x)
    assert (gradient != 0).any(-1).tolist() == [False] + 5 * [True]
    return {"T": 6, "d": 12}, locals()


def generating():
    tokens = torch.ones(3, 5)
    logits = torch.randn(3, 8)
    u = torch.rand(3)
    bent = keep_top_k(logits / 0.8, 4)
    p = bent.softmax(-1)
    return {"B": 3, "T": 5, "V": 8}, locals() | {"token": draw(p, u)[:, None]}


def guess_ahead():
    k, V = 4, 7
    guesses = torch.ones(k)
    q = torch.rand(k, V)
    unread = torch.cat([torch.ones(1), guesses])[None].long()
    model = GPT(GPTConfig(V, 9, d_model=12, n_heads=3, n_layers=1))
    return {"k": k, "V": V}, locals() | {"p": model(unread)[0].softmax(-1)}


def state_step():
    q, k = torch.randn(2, 1, 5, dtype=torch.float64)
    v = torch.randn(1, 3).double()
    half = torch.tensor([0.5]).double()
    state = torch.randn(5, 3).double()
    faded = 0.5 * state
    error = v - k @ faded
    written = faded + 0.5 * k.T @ error
    out = q @ written
    read = (q, k, v, half, half.log(), state)
    theirs = step_by_step.right(*read)
    assert torch.allclose(torch.cat([out, written]), torch.cat(theirs))
    return {"d_k": 5, "d_v": 3}, locals()


def rounded_row():
    x = torch.randn(2, 8)
    groups = x.unflatten(-1, (2, 4))
    codes, scale, _ = rounded = by_scale(x, 4, 4)
    values = rounded.values()
    assert torch.allclose(round_groups.right(x, 4, 4), values)
    return {"rows": 2, "n": 8, "m": 2, "g": 4}, locals()


def lora():
    r, alpha = 2, 6
    x, weight = torch.randn(4, 5), torch.randn(3, 5)
    down = torch.randn(r, 5)
    up = torch.randn(3, r)
    frozen, thin = x @ weight.T, x @ down.T
    change = alpha / r * thin @ up.T
    y = frozen + change
    merged = weight + alpha / r * up @ down
    assert torch.allclose(y, x @ merged.T, atol=1e-5)
    return {"T": 4, "d_in": 5, "d_out": 3, "r": r}, locals()


def many_hands():
    x, up0, up1 = torch.randn(4, 3), torch.randn(3, 5), torch.randn(3, 2)
    down0 = torch.randn(5, 3)
    down1 = torch.randn(2, 3)
    bias = torch.randn(3)
    inner0, inner1 = torch.tanh(x @ up0), torch.tanh(x @ up1)
    part0, part1 = inner0 @ down0, inner1 @ down1
    out = part0 + part1
    read = x, torch.cat([up0, up1], 1), torch.cat([down0, down1]), bias
    theirs = feed_forward_on_ranks.right(*read, sizes=(5, 2))
    assert torch.allclose(out + bias, theirs, atol=1e-5)
    return {"T": 4, "d": 3, "f0": 5, "f1": 2}, locals()


def tokens():
    merges = learn_merges("\n".join(book_text()).encode(), 200)
    ids = torch.tensor(encode_bytes(b"The boat", merges))
    assert ids.tolist() == [264, 368]  # as they stand in the drawing
    table = torch.randn(456, 12)
    data = torch.tensor(list(b"The boat"))
    tensors = {"data": data, "ids": ids, "table": table, "x": table[ids]}
    return {"n": 8, "T": 2, "V": 456, "d": 12}, tensors


def gpt():
    model = GPT(GPTConfig(7, 9, d_model=12, n_heads=3, n_layers=1))
    tokens = torch.ones(2, 5).long()
    table = model.token_embedding.weight
    x = model.embed(tokens, torch.arange(5))
    y = model.blocks[0](x, causal=True)
    seen = {"normed": model.norm(y), "logits": model(tokens), "table": table}
    return dict(B=2, T=5, d=12, V=7), seen | dict(tokens=tokens, x=x, y=y)


def loading():
    config = GPTConfig(11, 7, 12, 3, 1)
    ours = {
        part.split(".")[-2]: tensor
        for part, tensor in GPT(config).state_dict().items()
        if part.endswith("weight")
    }
    sizes = dict(vocab_size=11, n_positions=7, n_embd=12, n_head=3, n_layer=1)
    theirs = {
        name.replace(".c_proj", "_c_proj").split(".")[-2]: tensor
        for name, tensor in GPT2Model(GPT2Config(**sizes)).named_parameters()
        if name.endswith("weight")
    }
    mask = torch.ones(1, 1, 7, 7)
    return {"V": 11, "C": 7, "d": 12}, ours | theirs | {"mask": mask}


def pages():
    model = GPT(GPTConfig(7, 9, d_model=12, n_heads=3, n_layers=1))
    table = torch.tensor([2, 0])
    pool = Pages(6, 4, model).memory[0, 0]
    k = pool[table].flatten(0, 1)[:6]
    return dict(P=6, s=4, S=6, H_kv=3, d_k=4, n=2), locals()


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_shapes_of_a_drawing_are_those_of_tensors(name):
    sizes, tensors = globals()[name]()
    svg = (CHAPTERS / f"attnbook/teach/page/drawings/{name}.svg").read_text()
    shapes = re.findall(r'data-of="(\w+)"[^>]*>\((.*?)\)<', svg)
    assert len(shapes) == svg.count('class="shape') > 0
    for tensor, shape in shapes:
        drawn = eval(f"({shape.rstrip(',')},)" if shape else "()", {}, sizes)
        assert drawn == tuple(tensors[tensor].shape), tensor


def test_the_numbers_of_the_cut_are_those_of_its_tensors():
    _, tensors = cut_heads()
    svg = (CHAPTERS / "attnbook/teach/page/drawings/cut_heads.svg").read_text()
    drawn = " ".join(re.findall(r">([\d ]+)</text>", svg)).split()
    each = [tensors[n].flatten() for n in ("queries", "cut", "heads")]
    assert [int(n) for n in drawn] == torch.cat(each).tolist()


@pytest.fixture(scope="module")
def shown():
    """What is displayed as each drawing, by its name."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawings, "display", lambda x, raw: found.append(x))
        for name in DRAWINGS:
            drawings.drawing(name)
    return dict(zip(DRAWINGS, found, strict=True))


def test_an_unknown_drawing_is_refused():
    with pytest.raises(
        ValueError, match="expected one of batch_norm,.*'knot'"
    ):
        drawings.drawing("knot")


@pytest.mark.parametrize("name", DRAWINGS)
def test_in_a_notebook_a_drawing_is_a_picture(shown, name):
    """An untrusted one loses all other elements of it, and keeps the words."""
    soup = BeautifulSoup(shown[name]["text/html"], "html.parser")
    image = soup.select_one("div.drawing > img")
    assert soup.get_text().strip() == ""
    assert shown[name]["text/plain"] in image["alt"]
    kind, _, source = unquote(image["src"]).partition(",")
    assert kind == "data:image/svg+xml"
    assert xml.fromstring(source).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("name", DRAWINGS)
def test_in_the_page_a_drawing_holds_no_words_but_those_seen(shown, name):
    """A search marks all text of a page, and fails inside these."""
    html = in_the_page(shown[name]["text/html"])
    soup = BeautifulSoup(html, "html.parser")
    assert not soup.select("img, title, desc, style, [class=flow]")
    assert shown[name]["text/plain"] in soup.svg["aria-label"]
    assert "max-width" in soup.svg["style"]
    assert "background" not in soup.svg["style"]
    svg = (CHAPTERS / f"attnbook/teach/page/drawings/{name}.svg").read_text()
    words = BeautifulSoup(svg, "html.parser").select("text")
    assert soup.get_text("", strip=True) == "".join(
        "".join(word.stripped_strings) for word in words
    )


def test_what_is_no_drawing_is_not_put_into_the_page():
    with pytest.raises(ValueError, match="not the HTML of a drawing.*<svg>"):
        in_the_page('<div class="drawing">\n<svg></svg></div>')
