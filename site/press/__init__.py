"""The press: everything that makes the book's pages and its other forms.

Sphinx, which Jupyter Book calls, writes the pages. Five of the modules here
are extensions of it: `book_page`, `terms` and `cards` change what it writes,
`styles` and `pictures` make it lighter. The others make something of the
pages once they are written: `plain` a plain text of each, `epub` and `pdf`
one file of the whole book, `changes` a feed, `town_page` the script of the
page *The town*. What is no Python lies beside this folder: templates, style
sheets, scripts, KaTeX.

The press may import the library; nothing of the library imports the press.
"""
