"""The simulated engine and host. Everything in here is a simulation and says so."""
