"""What holds for all tests, however they are started."""

import signal

# A shell without job control has what it starts in the background ignore
# Ctrl-C, and all that this starts in turn. Tests press Ctrl-C, and one of
# them once waited for the answer for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
