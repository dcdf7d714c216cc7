"""The HTTP API: validate, call the store, answer."""
