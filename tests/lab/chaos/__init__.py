"""Chaos: a deployed service at work on a host of the lab, and whatever can end ended at every place of an experiment's way.

Real PostgreSQL, Redis, sshd, systemd and processes; the engines are simulated, and times are short (a lease lasts four seconds). `python -m
tests.lab.chaos` strikes with each fault at each place and prints the table; the tests take a sample.
"""
