"""Engine knowledge: command line, readiness, load phases and counters, one file an engine."""
