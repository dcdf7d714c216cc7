"""What documents say about the code, made from the code: `python -m docs.generate` fills it in, `--check` tells what is old."""
