"""`expctl-host`: the one program that expctl has on a host, as small modules that `assemble` joins into one file.

Everything here but `assemble` runs on the host, as root, on its own Python (3.8 or newer): the standard library only.
"""
