"""What holds for all tests, however they are started."""

import gc
import signal

# A shell without job control has what it starts in the background ignore
# Ctrl-C, and all that this starts in turn. Tests press Ctrl-C, and one of
# them once waited for the answer for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Python looks for circles of garbage after every 700 new objects, and now and
# then among all objects: half a million, with torch imported. That took up to
# a quarter of a part's time. So it looks less often here, and never among what
# was there before the first test.
gc.set_threshold(20_000, 10, 10)


def pytest_collection_finish() -> None:
    """Leave all that has been imported out of later searches."""
    gc.collect()
    gc.freeze()
