"""The engine that judges an answer: it knows what a task is, and no book.

A book registers itself (`registry`). An answer is run on the cases of its task
(`task`, `running`), its results are compared with the right ones
(`difference`), what is wrong with them becomes a `Finding` (`examine`,
`likeness`, `guesses`, `hints`), and `telling` makes sentences of it. `judge`
does all of that. `grade` does it for a folder of notebooks, `own` for
functions of other projects.
"""
