"""Many clients on one machine, through the same selection, gate and strategies as the coordinator.

Nothing stands here yet; `examples/flower-digits` runs under Flower's own simulation.
"""
