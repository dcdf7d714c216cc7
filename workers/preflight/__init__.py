"""What is wrong with an experiment, found in seconds and before anything is started."""
