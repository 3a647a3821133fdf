"""What holds for all tests."""

from __future__ import annotations

import signal

# A run that was started in the background of a script ignores these, and so would every program that a test starts:
# tests that interrupt one would wait for ever.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)
