"""What the life of a plant is made of: its batches, the monitors that watch it, and the figures of how they did."""
