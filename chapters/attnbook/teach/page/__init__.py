"""What a page needs beside its text: figures, drawings, printed numbers."""
