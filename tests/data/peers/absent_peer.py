"""A peer for the tests that is not installed."""

raise ImportError("the library is not on this machine")
