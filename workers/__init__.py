"""What is done: shifts, steps, hosts, engines and measurement."""
