"""People's hands: the command line and the HTTP client."""
