"""Chapter 18's figure: what caches take, and how many texts fit."""

import pytest
from figure import Figure
from playwright.sync_api import expect

PAGE = "18_fewer_keys"


def by_formula(data, heads, keys, latent, tokens, memory):
    """Bytes a token and texts that fit, in the four ways."""
    keys = min(keys, heads)
    numbers = [2 * heads * data["d_k"], 2 * keys * data["d_k"]]
    numbers += [latent + data["d_rotary"], numbers[1]]
    token = [n * data["layers"] * data["size"] for n in numbers]
    held = [tokens] * 3 + [min(tokens, data["window"])]
    fit = [memory * 10**9 // (b * n) for b, n in zip(token, held)]
    return token, fit


def shown(figure):
    rows = figure.host.get_by_role("table").last.evaluate(
        "table => [...table.rows].slice(1).map(row => [...row.cells].map("
        "cell => cell.textContent.replaceAll(',', '')))"
    )
    return [[int(row[n]) for row in rows] for n in (1, 2)]


@pytest.mark.parametrize(
    "heads, keys, latent, tokens, memory",
    [
        (32, 8, 512, 4096, 80),
        (128, 1, 64, 131_072, 16),
        (1, 4, 1024, 1024, 24),
        (64, 64, 256, 32_768, 80),
    ],
)
def test_bytes_and_texts_are_the_formulas(
    visit, heads, keys, latent, tokens, memory
):
    figure = Figure(visit(PAGE), "bytes")
    figure.slide("Heads of queries", heads.bit_length() - 1)
    figure.slide("Heads of keys", keys.bit_length() - 1)
    figure.slide("Latent width", latent)
    figure.slide("Tokens of a text", tokens.bit_length() - 1)
    option = figure.data["memories"].index(memory)
    figure.control("Memory for caches").select_option(str(option))
    token, fit = by_formula(figure.data, heads, keys, latent, tokens, memory)
    assert shown(figure) == [token, fit]
    assert f"Of texts of {tokens:,} tokens, {memory} GB hold" in figure.said
    assert f"hold {fit[0]} with a key for each head" in figure.said
    assert f"{fit[2]} with latents of {latent}" in figure.said


def test_there_are_never_more_heads_of_keys_than_of_queries(visit):
    figure = Figure(visit(PAGE), "bytes")
    figure.slide("Heads of keys", 7)
    figure.slide("Heads of queries", 2)
    expect(figure.control("Heads of keys")).to_have_attribute(
        "aria-valuetext", "4"
    )
    token, _ = shown(figure)
    assert token[0] == token[1] == token[3]
