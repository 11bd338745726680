"""A word leads to the glossary."""

from playwright.sync_api import expect


def test_a_word_leads_to_what_it_means(visit):
    page = visit("03_queries_keys_values")
    word = page.locator("a.term", has_text="projection")  # in text's colour
    expect(word).to_have_css("text-decoration-line", "underline")
    word.press("Enter")
    page.wait_for_url("**/glossary.html#term-projection")
    expect(page.locator("dt#term-projection")).to_be_in_viewport()
