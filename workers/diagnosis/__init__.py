"""What machines print, and what it means: journals, unit states, GPU tools, counters and commands, weighed together."""
