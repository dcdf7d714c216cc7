"""The simulated engine and host. Everything in here is a simulation and says so.

`python -m workers.sim serve MODEL ...` is shaped like `vllm serve` 0.32; `python -m workers.sim.nvidia_smi` answers for
eight simulated GPUs; `workers.sim.launchers.write_launchers` writes both as small programs. `workers.sim.knobs`
documents the environment variables that steer them.
"""
