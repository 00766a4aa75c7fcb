"""Handwritten digits with Flower and PyTorch."""
