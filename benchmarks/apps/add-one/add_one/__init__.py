"""An ordinary Flower app without any training."""
