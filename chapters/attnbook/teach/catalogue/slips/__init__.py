"""Slips that a check recognises and answers with a question, and no more.

A known mistake has its page in the catalogue: what one sees, why, where it was
seen. These are the smaller mistakes of single exercises: a wrong function, its
name in words, and a question. All are written in one way,
``module.task.slip(words, question, wrong)``, and each chapter has a module.
"""
