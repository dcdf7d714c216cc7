"""Other tools' result files, read into our definitions."""
