"""Reach a host: keep units on it, read their logs, its ports and its GPUs."""
