"""Pure rules and records of the project. Imports nothing of ours and does no I/O."""
