"""A word leads to the glossary, a symbol to the notation."""

from playwright.sync_api import expect

CHAPTER = "03_queries_keys_values"


def test_a_word_and_a_symbol_lead_to_what_they_mean(visit):
    page = visit(CHAPTER)
    word = page.locator("a.term", has_text="projection")
    assert word.get_attribute("title").startswith("A product of a vector")
    # They have the colour of the text, so a line tells them from it.
    expect(word).to_have_css("text-decoration-line", "underline")
    symbols = page.locator("p.symbols > a.symbol")
    expect(symbols.first).to_have_css("border-bottom-style", "dotted")
    word.focus()
    word.press("Enter")
    page.wait_for_url("**/glossary.html#term-projection")
    expect(page.locator("dt#term-projection")).to_be_in_viewport()
    page.go_back()
    symbols.and_(page.locator("[href$='#sym-d-k']")).click()
    page.wait_for_url("**/notation.html#sym-d-k")
    expect(page.locator("tr#sym-d-k")).to_be_in_viewport()
