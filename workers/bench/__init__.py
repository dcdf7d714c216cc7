"""The native load client and what joins it with an engine's counters."""
