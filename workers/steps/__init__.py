"""The six steps of an experiment, one file and one verb each."""
