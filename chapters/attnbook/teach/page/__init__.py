"""What a page needs beside its text: figures, drawings and printed numbers.

It also has the known mistakes as a page shows them, and the clinic.
"""
